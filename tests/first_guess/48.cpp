// Plain C++: timing, logging, an inference service with a queue, model reloaded while it serves, exceptions.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>
#include <tandem/tandem.h>

namespace td = tandem;

class Service {
 public:
  explicit Service(td::Sequential model) : model_(std::move(model)), worker_([this] { run(); }) {}
  ~Service() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    ready_.notify_all();
    worker_.join();
  }
  void submit(td::Tensor request) {
    {
      std::lock_guard lock(mutex_);
      queue_.push_back(std::move(request));
    }
    ready_.notify_one();
  }
  int served() const { return served_; }

 private:
  void run() {
    while (true) {
      td::Tensor request;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return done_ || !queue_.empty(); });
        if (queue_.empty()) return;
        request = queue_.front();
        queue_.pop_front();
      }
      const td::Tensor answer = model_.predict(request, {.verbose = 0});
      const std::vector<float> values = answer.to_vector<float>();
      if (!values.empty()) ++served_;
    }
  }
  td::Sequential model_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<td::Tensor> queue_;
  bool done_ = false;
  std::atomic<int> served_{0};
  std::thread worker_;
};

int main() {
  td::logging::set_level("warning");
  td::Sequential model({td::layers::Dense(32, {.activation = "relu", .input_shape = {16}}), td::layers::Dense(4, {.activation = "softmax"})});
  const auto start = std::chrono::high_resolution_clock::now();
  int served = 0;
  {
    Service service(model);
    for (int i = 0; i < 20; ++i) service.submit(td::random::uniform({4, 16}));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    model.save_weights(std::filesystem::path("weights.safetensors"));
    model.load_weights("weights.safetensors");
    while (service.served() < 20) std::this_thread::yield();
    served = service.served();
  }
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::high_resolution_clock::now() - start);
  std::cout << served << " requests in " << elapsed.count() << " ms, " << model.count_params() << " parameters\n";
  try {
    model.load_weights("missing.safetensors");
  } catch (const td::NotFoundError& e) {
    std::cout << "not found: " << e.what() << "\n";
    return 0;
  }
  return 1;
}
