// Forward passes of a case. Each line of the standard input asks for a measurement,
//   WAY BATCH SECONDS CALLERS
// and a JSON line answers. Ways: session (a frozen graph), function (a traced function of the
// model's variables), eager, predict. CALLERS threads call at the same time, each with a team of
// --threads. "ms" is the time of a call as one of them sees it, "ms_per_call" the time over the
// calls of all, and "result" the first numbers of the result.
#include <tandem/tandem.h>

#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "cases.h"
#include "report.h"

namespace {

using namespace bench;  // NOLINT: the program is the benchmark

using Call = std::function<td::Tensor(const td::Tensor&)>;

Call make_session(const ModelCase& what, const td::Model& model) {
  td::Graph built;
  td::Tensor result;
  {
    const td::GraphScope building(built);
    const td::DType dtype = what.vocabulary > 0 ? td::int64 : td::float32;
    result = td::identity(model(td::placeholder(dtype, what.example.with_leading(-1), "x")),
                          {.name = "y"});
  }
  const td::Graph graph =
      td::Graph::deserialize(built.serialize({.freeze_variables = true, .outputs = {result}}));
  const auto session = std::make_shared<td::Session>(graph);
  return [session, x = graph.tensor("x:0"), y = graph.tensor("y:0")](const td::Tensor& input) {
    return session->run({{x, input}}, y);
  };
}

Call make_call(const std::string& way, const ModelCase& what, const td::Model& model,
               std::int64_t batch) {
  if (way == "session") return make_session(what, model);
  if (way == "predict")
    return [model, batch](const td::Tensor& x) mutable {
      return model.predict(x, {.batch_size = batch});
    };
  Call eager = [model](const td::Tensor& x) {
    const td::NoGradScope no_grad;
    return model(x);
  };
  if (way == "eager") return eager;
  if (way != "function") throw std::invalid_argument("unknown way " + way);
  return [function = td::function(eager)](const td::Tensor& x) {
    const td::NoGradScope no_grad;
    return function(x);
  };
}

void measure(const Call& call, const std::vector<Example>& pool, double seconds, int callers) {
  const auto first = call(pool[0][0]).to_vector<float>();
  std::vector<double> ms(static_cast<std::size_t>(callers));
  std::vector<int> calls(ms.size(), 0);
  const auto run = [&](std::size_t caller, double limit) {
    const auto steps = [&](int count) {
      for (int i = 0; i < count; ++i) call(pool[static_cast<std::size_t>(i) % pool.size()][0]);
      calls[caller] += count;
    };
    ms[caller] = time_for(limit, static_cast<int>(pool.size()), steps);
  };
  const auto run_all = [&](double limit) {
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < ms.size(); ++i) others.emplace_back(run, i, limit);
    run(0, limit);
    for (std::thread& other : others) other.join();
  };
  run_all(seconds / 4);
  std::fill(calls.begin(), calls.end(), 0);
  const auto begin = std::chrono::steady_clock::now();
  run_all(seconds);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  int total = 0;
  for (const int each : calls) total += each;
  std::printf("{\"ms\": %.6f, \"ms_per_call\": %.6f, \"result\": [%.7g, %.7g]}\n", ms[0],
              taken.count() / total, static_cast<double>(first[0]), static_cast<double>(first[1]));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const BenchOptions options = parse(argc, argv);
  td::config::set_visible_devices({}, "GPU");
  td::config::set_intra_op_parallelism_threads(options.threads);
  const ModelCase what = find_case(options.name, options.tiny);
  const td::Model model = make_model(what);
  std::map<std::pair<std::string, std::int64_t>, Call> calls;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string way;
    std::int64_t batch = 1;
    double seconds = 0;
    int callers = 1;
    words >> way >> batch >> seconds >> callers;
    Call& call = calls[{way, batch}];
    if (!call) call = make_call(way, what, model, batch);
    measure(call, make_pool(what, batch), seconds, callers);
  }
}
