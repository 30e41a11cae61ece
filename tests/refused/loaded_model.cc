// error: make the model by the code that made the saved one
#include <tandem/tandem.h>

void f() { auto model = tandem::models::load_model("model.keras"); }
