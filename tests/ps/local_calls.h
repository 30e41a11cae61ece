// Remote procedure calls within a thread, for tests of the services.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "rpc/channel.h"
#include "rpc/frame.h"
#include "rpc/server.h"

namespace tandem::ps::testing {

// Attachments of its own, as if the message had been received.
inline rpc::Message received(const rpc::Message& message) {
  std::string bytes = rpc::frame_prefix(message, 0);
  for (const rpc::Attachment& each : message.attachments)
    bytes.append(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
  const std::span<const std::byte> piece = std::as_bytes(std::span(bytes));
  return rpc::parse_frame({&piece, 1}).message;
}

// Calls handlers. `observe` sees every request of a LocalChannel.
class LocalServer final : public rpc::Server {
 public:
  using Observer = std::function<void(const std::string& method, const rpc::Message& request)>;

  void handle(const std::string& method, rpc::Handler handler) override {
    handlers_[method] = std::move(handler);
  }
  void start() override {}
  std::uint16_t port() const override { return 1; }
  void stop(std::chrono::milliseconds) override {}

  rpc::Message call(const std::string& method, const rpc::Message& request) const {
    if (observe) observe(method, request);
    return handlers_.at(method)(Context(), received(request));
  }

  Observer observe;

 private:
  class Context final : public rpc::CallContext {
   public:
    const std::string& caller() const override { return caller_; }
    std::chrono::milliseconds remaining() const override { return std::chrono::minutes(1); }
    bool cancelled() const override { return false; }

   private:
    std::string caller_ = "test";
  };

  std::map<std::string, rpc::Handler> handlers_;
};

// Calls run when they are started. The server has to outlive the channel.
class LocalChannel final : public rpc::Channel {
 public:
  explicit LocalChannel(const LocalServer& server) : server_(server) {}

  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions&) override {
    auto call = std::make_unique<EndedCall>();
    try {
      call->reply = received(server_.call(method, request));
    } catch (...) {
      call->error = std::current_exception();
    }
    return call;
  }

 private:
  class EndedCall final : public rpc::Call {
   public:
    bool done() const override { return true; }
    rpc::Message wait() override {
      if (error) std::rethrow_exception(error);
      return std::move(reply);
    }
    void cancel() override {}

    rpc::Message reply;
    std::exception_ptr error;
  };

  const LocalServer& server_;
};

}  // namespace tandem::ps::testing
