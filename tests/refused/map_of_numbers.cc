// error: the function of map() takes a const Example&, or one Tensor for each component
#include "tandem/data.h"

int main() {
  tandem::data::Dataset dataset;
  dataset.map([](int number) { return number; });
}
