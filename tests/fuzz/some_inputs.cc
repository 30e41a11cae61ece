// Runs a fuzzer without libFuzzer: on the given files, or on generated inputs, which are the same
// in every run. It checks that fuzzers still work between long runs.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace {

constexpr int kInputs = 2000;
// The characters of generated strings.
constexpr std::string_view kLetters = "abcgGpPuUxyz0123456789/:,.=-_*@#&?%[]{}()\"' \n\t";

void run(std::string_view input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string generate_input(std::mt19937& random) {
  const bool text = random() % 2 == 0;
  std::string input(random() % (random() % 8 == 0 ? 2000 : 40), '\0');
  for (char& letter : input)
    letter = text ? kLetters[random() % kLetters.size()] : static_cast<char>(random() % 256);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::cerr << "cannot read " << argv[i] << '\n';
      return 2;
    }
    run(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc > 1) return 0;
  std::mt19937 random(20240229);
  for (int i = 0; i < kInputs; ++i) run(generate_input(random));
}
