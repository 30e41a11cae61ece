// Any bytes as one of NumPy's files, and a good archive with damages, result in
// arrays or a typed error.
#include <unistd.h>

#include <filesystem>
#include <string>

#include "data/formats.h"
#include "fuzz/damage.h"
#include "tandem/creation.h"
#include "tandem/errors.h"

namespace {

template <class F>
void expect_typed_errors(const F& parse) {
  try {
    static_cast<void>(parse());
  } catch (const tandem::Error&) {
  }
}

// An archive of two arrays.
std::string archive(bool compressed) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("tandem-fuzz-" + std::to_string(getpid()) + ".npz"))
                               .string();
  tandem::data::write_npz(path, {{"x", tandem::ones({40})}, {"y", tandem::zeros({2, 2})}},
                          {.compressed = compressed});
  const auto bytes = tandem::data::read_file("fuzz", path);
  std::filesystem::remove(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto input = std::as_bytes(std::span(bytes, size));
  expect_typed_errors([&] { return tandem::data::parse_npy(input, "input", {}); });
  expect_typed_errors([&] { return tandem::data::parse_npz(input, "input", {}); });
  static const std::string good[] = {archive(false), archive(true)};
  for (std::string damaged : good) {
    tandem::fuzz::damage(damaged, {bytes, size});
    expect_typed_errors(
        [&] { return tandem::data::parse_npz(std::as_bytes(std::span(damaged)), "input", {}); });
  }
  std::string array = tandem::data::npy_of(tandem::ones({3, 2}));
  tandem::fuzz::damage(array, {bytes, size});
  expect_typed_errors(
      [&] { return tandem::data::parse_npy(std::as_bytes(std::span(array)), "input", {}); });
  return 0;
}
