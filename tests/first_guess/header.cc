// Compiles the header for the programs beside it.
