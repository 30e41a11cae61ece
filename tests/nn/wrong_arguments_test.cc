// No optimizer takes arguments that make NaN of weights.
#include <gtest/gtest.h>

#include <limits>
#include <type_traits>
#include <utility>

#include "support/errors.h"
#include "tandem/apex.h"
#include "tandem/creation.h"
#include "tandem/optim.h"
#include "tandem/optimizers.h"

namespace tandem::wrong_arguments_test {
namespace {

constexpr double kBad[] = {std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()};

// Expects make(options) to refuse each bad value of each member.
template <class Options, class Make, class... Members>
void expect_refused(const char* what, const Make& make, Options options, Members... members) {
  ASSERT_NO_THROW(make(options)) << what;
  const auto refuses = [&](auto member) {
    for (const double bad : kBad) {
      Options changed = options;
      changed.*member = bad;
      EXPECT_EQ(testing::any_error_of([&] { make(changed); }).substr(0, 21),
                "InvalidArgumentError:")
          << what << " with " << bad;
    }
  };
  (refuses(members), ...);
}

TEST(OptimizerArguments, OfKerasAreFinite) {
  using namespace optimizers;
  const auto make = [](auto type) {
    using Type = typename decltype(type)::type;
    return [](const auto& options) { Type made(options, std::vector<Variable>()); };
  };
  const auto refused = [&]<class Type, class Options>(const char* what,
                                                      std::type_identity<Type> type,
                                                      Options options, auto... members) {
    expect_refused(what, make(type), options, &Options::learning_rate, &Options::weight_decay,
                   &Options::clipnorm, &Options::clipvalue, &Options::global_clipnorm, members...);
  };
  refused("SGD", std::type_identity<SGD>(), SGDOptions(), &SGDOptions::momentum);
  refused("Adam", std::type_identity<Adam>(), AdamOptions(), &AdamOptions::beta_1,
          &AdamOptions::beta_2, &AdamOptions::epsilon);
  refused("AdamW", std::type_identity<AdamW>(), AdamWOptions(), &AdamWOptions::beta_1,
          &AdamWOptions::beta_2, &AdamWOptions::epsilon);
  refused("LAMB", std::type_identity<LAMB>(), LAMBOptions(), &LAMBOptions::beta_1,
          &LAMBOptions::beta_2, &LAMBOptions::epsilon);
  refused("RMSprop", std::type_identity<RMSprop>(), RMSpropOptions(), &RMSpropOptions::rho,
          &RMSpropOptions::momentum, &RMSpropOptions::epsilon);
  refused("Adagrad", std::type_identity<Adagrad>(), AdagradOptions(), &AdagradOptions::epsilon,
          &AdagradOptions::initial_accumulator_value);
}

TEST(OptimizerArguments, OfTorchAreFinite) {
  using namespace optim;
  const Variable w(ones({2}));
  const auto refused = [&]<class Type, class Options>(const char* what, std::type_identity<Type>,
                                                      Options options, auto... members) {
    options.params = {w};
    expect_refused(
        what, [](const Options& group) { Type made(std::vector<Options>{group}); }, options,
        &Options::lr, &Options::weight_decay, members...);
  };
  refused("SGD", std::type_identity<SGD>(), SGDGroup{.momentum = 0.5}, &SGDGroup::momentum,
          &SGDGroup::dampening);
  refused("Adam", std::type_identity<Adam>(), AdamGroup(), &AdamGroup::eps);
  refused("AdamW", std::type_identity<AdamW>(), AdamWGroup(), &AdamWGroup::eps);
  refused("RMSprop", std::type_identity<RMSprop>(), RMSpropGroup(), &RMSpropGroup::alpha,
          &RMSpropGroup::momentum, &RMSpropGroup::eps);
  refused("Adagrad", std::type_identity<Adagrad>(), AdagradGroup(), &AdagradGroup::eps,
          &AdagradGroup::lr_decay, &AdagradGroup::initial_accumulator_value);
  for (const double bad : kBad)
    for (const auto& betas : {std::pair{bad, 0.9}, std::pair{0.9, bad}})
      EXPECT_THROW(Adam({{.params = {w}, .betas = betas}}), InvalidArgumentError) << bad;
}

TEST(OptimizerArguments, OfApexAreFinite) {
  using namespace apex::optimizers;
  const auto adam = [](const FusedAdamOptions& options) { FusedAdam(options); };
  expect_refused("FusedAdam", adam, FusedAdamOptions(), &FusedAdamOptions::learning_rate,
                 &FusedAdamOptions::beta_1, &FusedAdamOptions::beta_2, &FusedAdamOptions::epsilon,
                 &FusedAdamOptions::weight_decay);
  const auto lamb = [](const FusedLAMBOptions& options) { FusedLAMB(options); };
  expect_refused("FusedLAMB", lamb, FusedLAMBOptions(), &FusedLAMBOptions::learning_rate,
                 &FusedLAMBOptions::beta_1, &FusedLAMBOptions::beta_2, &FusedLAMBOptions::epsilon,
                 &FusedLAMBOptions::weight_decay, &FusedLAMBOptions::max_grad_norm);
  const auto sgd = [](const FusedSGDOptions& options) { FusedSGD(options); };
  expect_refused("FusedSGD", sgd, FusedSGDOptions{.momentum = 0.5}, &FusedSGDOptions::learning_rate,
                 &FusedSGDOptions::momentum, &FusedSGDOptions::dampening,
                 &FusedSGDOptions::weight_decay);
}

}  // namespace
}  // namespace tandem::wrong_arguments_test
