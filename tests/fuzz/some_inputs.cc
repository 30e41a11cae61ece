// Runs a fuzzer without libFuzzer: on the files that are named, or on made-up inputs, the same in
// every run. It keeps fuzzers in order between the days on which they are let loose.
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
// What texts that are parsed are made of.
constexpr std::string_view kLetters = "abcgGpPuUxyz0123456789/:,.=-_*@#&?%[]{}()\"' \n\t";

void run(std::string_view input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string made_up(std::mt19937& draw) {
  const bool text = draw() % 2 == 0;
  std::string input(draw() % (draw() % 8 == 0 ? 2000 : 40), '\0');
  for (char& letter : input)
    letter = text ? kLetters[draw() % kLetters.size()] : static_cast<char>(draw() % 256);
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
  std::mt19937 draw(20240229);
  for (int i = 0; i < kInputs; ++i) run(made_up(draw));
}
