// A rank for tests of launchers. Joins the job with env://, then acts on its arguments:
//
//   rendezvous_program                    prints the messages of all ranks
//   rendezvous_program die RANK           RANK kills itself; the others fail by its death
//   rendezvous_program fail RANK          RANK aborts and exits with 3
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include "comm/rendezvous/rendezvous.h"
#include "tandem/errors.h"

namespace {

using namespace std::chrono_literals;

std::chrono::steady_clock::time_point soon() { return std::chrono::steady_clock::now() + 60s; }

int meet(const std::string& what, int who) {
  const auto job = tandem::rendezvous("env://", {.timeout = 60s});
  job->store()->set(std::to_string(job->rank()), std::to_string(job->rank()));
  std::string all;
  for (int rank = 0; rank < job->size(); ++rank)
    all += job->store()->get(std::to_string(rank), soon());
  if (what.empty()) {
    std::cout << "rank " << job->rank() << " of " << job->size() << ": " << all << std::endl;
    job->shut_down();
    return 0;
  }
  if (job->rank() == who) {
    if (what == "die") raise(SIGKILL);
    job->membership()->report("as requested");
    std::cerr << "this rank fails" << std::endl;
    return 3;
  }
  job->store()->get("never", soon());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return meet(argc > 2 ? argv[1] : "", argc > 2 ? std::stoi(argv[2]) : -1);
  } catch (const tandem::Error& error) {
    std::cerr << error.kind() << ": " << error.what() << std::endl;
    return 2;
  }
}
