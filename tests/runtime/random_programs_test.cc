// Random programs give the same bits eagerly and as traced functions: results, variables and
// gradients.
//
// TANDEM_RANDOM_PROGRAMS=N runs N programs of each kind; TANDEM_RANDOM_PROGRAMS_FIRST=S begins with
// seed S.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "runtime/random_program.h"
#include "support/errors.h"
#include "support/gpus.h"

namespace tandem::random_programs_test {
namespace {

using testing::RandomProgram;

std::uint32_t number_of(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

// Dtype, shape and the bits of the elements. All NaNs are equal, because the sign of a computed NaN
// depends on the order of operands in the instruction.
std::string bits_of(const Tensor& tensor) {
  std::string bits(name_of(tensor.dtype()));
  bits += tensor.shape().to_string();
  for (const double value : testing::values_of(tensor)) {
    const double canonical = std::isnan(value) ? std::nan("") : value;
    bits.append(reinterpret_cast<const char*>(&canonical), sizeof(canonical));
  }
  return bits;
}

std::vector<std::string> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> bits;
  for (const Tensor& tensor : tensors) bits.push_back(bits_of(tensor));
  return bits;
}

std::string printable(const std::string& bits) {
  std::string text;
  for (const char c : bits.substr(0, 200))
    text += std::isprint(static_cast<unsigned char>(c)) ? c : '.';
  return text + " (" + std::to_string(bits.size()) + " bytes)\n";
}

// The outcome of a call of a program: the bits of its results and variables, or its error.
using Call = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

std::vector<std::string> bits_of_calls(RandomProgram& program, const Call& call, bool backward) {
  std::vector<std::string> bits;
  for (std::uint32_t number = 0; number < 4; ++number) {
    random::set_seed(number + 11);
    const std::vector<Tensor> inputs = program.inputs(number);
    std::vector<Tensor> results;
    // Both modes must throw the same error.
    const std::string error = testing::any_error_of([&] {
      if (!backward) {
        results = call(inputs);
        return;
      }
      GradientTape tape;
      for (const Tensor& input : inputs) tape.watch(input);
      results = call(inputs);
      for (const Tensor& gradient :
           tape.gradient(program.total(results), inputs,
                         {.unconnected_gradients = UnconnectedGradients::kZero}))
        results.push_back(gradient);
    });
    bits.push_back(error);
    // An eager program runs up to the error, a traced program does not run at all.
    if (error != "no error") return bits;
    for (std::string& result : bits_of(results)) bits.push_back(std::move(result));
    for (const Variable& variable : program.variables()) bits.push_back(bits_of(variable.value()));
  }
  return bits;
}

void compare(const RandomProgram::Options& options, bool backward, std::uint32_t programs) {
  const std::uint32_t first = number_of("TANDEM_RANDOM_PROGRAMS_FIRST", 1);
  programs = number_of("TANDEM_RANDOM_PROGRAMS", programs);
  std::uint32_t failed = 0;
  for (std::uint32_t seed = first; seed < first + programs; ++seed) {
    RandomProgram eager(seed, options), traced(seed, options);
    const auto function =
        tandem::function([&](const std::vector<Tensor>& inputs) { return traced(inputs); });
    const auto expected = bits_of_calls(eager, std::ref(eager), backward);
    const auto actual = bits_of_calls(traced, function, backward);
    for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
      if (actual[i] == expected[i]) continue;
      ADD_FAILURE() << "TANDEM_RANDOM_PROGRAMS_FIRST=" << seed << ", outcome " << i << ":\n"
                    << printable(actual[i]) << "instead of\n"
                    << printable(expected[i]);
      break;
    }
    for (const std::string& outcome : expected) failed += outcome.find("Error: ") < 32;
  }
  // Programs that throw compare little.
  EXPECT_LE(failed, programs / 10);
}

TEST(RandomPrograms, TracedEqualsEager) { compare({}, false, 400); }

TEST(RandomPrograms, GradientsComputedInsideAreEqual) {
  compare({.gradients_inside = true}, false, 300);
}

TEST(RandomPrograms, GradientsComputedOutsideAreEqual) { compare({}, true, 300); }

TEST(RandomPrograms, EveryFloatingDtypeIsEqual) {
  for (const DType dtype : {float64, float16, bfloat16})
    compare({.dtype = dtype, .gradients_inside = true}, false, 30);
}

TEST(RandomPrograms, OperationsOnSeveralDevicesAreEqual) {
  testing::use_gpus(2);
  compare({.gradients_inside = true, .devices = {"/cpu:0", "/gpu:0", "/gpu:1"}}, false, 60);
}

}  // namespace
}  // namespace tandem::random_programs_test
