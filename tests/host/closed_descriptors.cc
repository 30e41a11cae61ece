// A host that was started without standard input, output and error. Messages for them reach no file
// that the library opens.
#include <tandem/tandem.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace td = tandem;

int main() {
  const auto path = std::filesystem::temp_directory_path() /
                    ("tandem_closed_descriptors_" + std::to_string(getpid()) + ".csv");
  td::Sequential model({td::layers::Dense(1, {.input_shape = {2}})});
  model.compile({.optimizer = td::optimizers::SGD(), .loss = td::losses::MeanSquaredError()});
  model.fit(td::ones({8, 2}), td::ones({8, 1}),
            {.epochs = 2, .verbose = 1, .callbacks = {td::callbacks::CSVLogger(path)}});
  std::ifstream file(path);
  std::string line;
  bool good = static_cast<bool>(std::getline(file, line)) && line == "epoch,loss";
  int rows = 0;
  for (; std::getline(file, line); ++rows) good &= line.starts_with(std::to_string(rows) + ",");
  std::filesystem::remove(path);
  return good && rows == 2 ? 0 : 1;
}
