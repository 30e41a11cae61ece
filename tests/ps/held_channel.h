// A worker that does not answer its first run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "rpc/channel.h"

namespace tandem::ps::testing {

// Holds back the request or the reply of the first run, until the call is cancelled.
class HeldChannel final : public rpc::Channel {
 public:
  enum class What { kRequest, kReply };

  explicit HeldChannel(std::shared_ptr<rpc::Channel> channel, What what = What::kReply)
      : channel_(std::move(channel)), what_(what) {}
  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions& options) override {
    if (method != "Worker/Run" || started++ > 0)
      return channel_->start(method, std::move(request), options);
    return std::make_unique<Held>(
        what_ == What::kReply ? channel_->start(method, std::move(request), options) : nullptr);
  }

  std::atomic<int> started = 0;  // runs

 private:
  class Held final : public rpc::Call {
   public:
    explicit Held(std::unique_ptr<rpc::Call> call) : call_(std::move(call)) {}
    bool done() const override { return false; }
    rpc::Message wait() override {
      std::unique_lock lock(mutex_);
      cancelled_.wait(lock, [&] { return is_cancelled_; });
      throw AbortedError("the call was cancelled");
    }
    void cancel() override {
      const std::lock_guard lock(mutex_);
      is_cancelled_ = true;
      cancelled_.notify_all();
    }

   private:
    std::unique_ptr<rpc::Call> call_;
    std::mutex mutex_;
    std::condition_variable cancelled_;
    bool is_cancelled_ = false;
  };

  std::shared_ptr<rpc::Channel> channel_;
  const What what_;
};

}  // namespace tandem::ps::testing
