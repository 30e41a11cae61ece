// Remote procedure calls without a network: the thread that waits for a call runs the handler. The
// bytes are those of frames, as on the wire.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rpc/channel.h"
#include "rpc/frame.h"
#include "rpc/server.h"

namespace tandem::ps::testing {

class DirectServer final : public rpc::Server {
 public:
  // Bytes of the frames so far.
  struct Traffic {
    std::size_t calls = 0, sent = 0, received = 0;
  };

  void handle(const std::string& method, rpc::Handler handler) override {
    handlers_[method] = std::move(handler);
  }
  void start() override {}
  std::uint16_t port() const override { return 0; }
  void check_listening() const override {}
  void stop(std::chrono::milliseconds) override {}

  rpc::Message call(const std::string& method, const rpc::Message& request) {
    if (on_request) on_request(method, request);
    std::size_t sent = 0, received = 0;
    rpc::Message reply = handlers_.at(method)(Context(), transferred(request, sent));
    if (on_reply) on_reply(method, reply);
    rpc::Message result = transferred(reply, received);
    const std::lock_guard lock(mutex_);
    Traffic& traffic = by_method[method];
    ++traffic.calls;
    traffic.sent += sent;
    traffic.received += received;
    return result;
  }

  std::map<std::string, Traffic> by_method;
  using Observer = std::function<void(const std::string& method, const rpc::Message& message)>;
  Observer on_request, on_reply;

 private:
  class Context final : public rpc::CallContext {
    const std::string& caller() const override { return caller_; }
    std::chrono::milliseconds remaining() const override { return std::chrono::hours(1); }
    bool cancelled() const override { return false; }
    std::string caller_ = "test";
  };

  // The message as its receiver has it, in memory of its own.
  static rpc::Message transferred(const rpc::Message& message, std::size_t& bytes) {
    bytes += rpc::frame_bytes(message);
    std::string frame = rpc::frame_prefix(message, 0);
    for (const rpc::Attachment& attachment : message.attachments)
      frame.append(reinterpret_cast<const char*>(attachment.bytes.data()), attachment.bytes.size());
    const auto all = std::as_bytes(std::span<const char>(frame));
    return rpc::parse_frame({&all, 1}).message;
  }

  std::map<std::string, rpc::Handler> handlers_;
  std::mutex mutex_;  // guards by_method
};

class DirectChannel final : public rpc::Channel {
 public:
  explicit DirectChannel(DirectServer& server) : server_(server) {}

  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions&) override {
    return std::make_unique<Call>(
        [this, method, request] { return server_.call(method, request); });
  }

 private:
  class Call final : public rpc::Call {
   public:
    explicit Call(std::function<rpc::Message()> run) : run_(std::move(run)) {}
    bool done() const override { return true; }
    rpc::Message wait() override { return run_(); }
    void cancel() override {}

   private:
    std::function<rpc::Message()> run_;
  };

  DirectServer& server_;
};

}  // namespace tandem::ps::testing
