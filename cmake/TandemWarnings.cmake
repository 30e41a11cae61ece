# Flags of every target of the project: warnings, and the sanitizers of the preset.
add_library(tandem_flags INTERFACE)
target_compile_options(tandem_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                                             -fno-math-errno -fno-trapping-math)
if(TANDEM_WERROR)
  target_compile_options(tandem_flags INTERFACE -Werror)
endif()
if(TANDEM_SANITIZE)
  target_compile_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=all)
  target_link_options(tandem_flags INTERFACE -fsanitize=${TANDEM_SANITIZE})
  # Resolvers of function clones run before a sanitizer is ready.
  target_compile_definitions(tandem_flags INTERFACE TANDEM_NO_FUNCTION_CLONES)
endif()
