// error: (input, target)
#include <tandem/tandem.h>

void f(tandem::Model model) { model.compile({.loss = tandem::nn::functional::mse_loss}); }
