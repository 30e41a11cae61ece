#include <cstdlib>

#include "comm/rendezvous/socket.h"
#include "core/json.h"
#include "core/status.h"
#include "estimator/train_and_evaluate.h"
#include "tandem/parallel.h"

namespace tandem::estimator {
namespace {

struct ClusterTask {
  std::string type;
  int index = 0;
};

std::vector<ClusterTask> tasks_of(const ClusterSpec& spec) {
  std::vector<ClusterTask> tasks;
  if (spec.chief) tasks.push_back({"chief", 0});
  for (int worker = 0; worker < spec.workers; ++worker) tasks.push_back({"worker", worker});
  for (int server = 0; server < spec.ps; ++server) tasks.push_back({"ps", server});
  if (spec.evaluator) tasks.push_back({"evaluator", 0});
  return tasks;
}

}  // namespace

std::optional<Evaluation> run_client(const TrainAndEvaluateCall& call) {
  const std::vector<ClusterTask> tasks = tasks_of(*call.options.cluster);
  std::vector<Socket> reserved;  // keeps the ports reserved while the tasks run
  Json cluster;
  for (const ClusterTask& each : tasks) {
    reserved.push_back(reserve_port("127.0.0.1"));
    cluster[each.type].push_back(fmt::format("127.0.0.1:{}", port_of(reserved.back())));
  }
  EstimatorOptions options = call.options;
  options.cluster.reset();
  const Estimator estimator(std::move(options));
  parallel::spawn(
      [&](int rank, int) {
        const ClusterTask& own = tasks[static_cast<std::size_t>(rank)];
        const Json config = {{"cluster", cluster},
                             {"task", {{"type", own.type}, {"index", own.index}}}};
        setenv("TF_CONFIG", config.dump().c_str(), 1);
        train_and_evaluate(estimator, call.train, call.evaluate);
      },
      {.nprocs = static_cast<int>(tasks.size())});
  return ModelDirectory(call.options.model_dir).last_evaluation(call.evaluate.name);
}

}  // namespace tandem::estimator
