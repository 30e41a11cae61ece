// error: write model.save_weights(path)
#include <tandem/tandem.h>

void f(const tandem::Sequential& model) { model.save("model.keras"); }
