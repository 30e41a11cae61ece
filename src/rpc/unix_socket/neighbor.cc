#include "rpc/unix_socket/neighbor.h"

#include <optional>
#include <utility>

#include "core/status.h"

namespace tandem::rpc {
namespace {

class UnixCall final : public Call {
 public:
  UnixCall(std::shared_ptr<Neighbor> server, std::shared_ptr<Connection> connection,
           std::shared_ptr<Exchange> exchange, SharedSender::Sent sent, CallDescription description)
      : server_(std::move(server)),
        connection_(std::move(connection)),
        exchange_(std::move(exchange)),
        sent_(std::move(sent)),
        description_(std::move(description)),
        end_(Clock::now() + description_.limit()) {}

  ~UnixCall() override {
    if (!connection_->cancel(*exchange_) && !taken_)
      connection_->discard(std::as_bytes(std::span(exchange_->reply)));
    sent_.revoke();
  }

  bool done() const override { return connection_->has_ended(*exchange_) || Clock::now() >= end_; }
  void cancel() override { connection_->cancel(*exchange_); }

  Message wait() override {
    const bool late = !connection_->wait(*exchange_, end_) && connection_->cancel(*exchange_);
    sent_.revoke();  // what the server has not taken, it will not take
    if (std::exchange(taken_, true)) description_.fail_taken();
    if (late) description_.fail_late();
    if (exchange_->end == Exchange::End::kCancelled) description_.fail_cancelled();
    if (exchange_->end == Exchange::End::kLost) {
      server_->lost();
      description_.fail_unreachable(exchange_->why);
    }
    return reply();
  }

 private:
  Message reply() {
    const std::string bytes = std::move(exchange_->reply);
    Frame frame;
    try {
      const auto all = std::as_bytes(std::span(bytes));
      frame = parse_frame({&all, 1});
    } catch (const DataLossError& error) {
      description_.fail_damaged(error.what());
    }
    return server_->message_of(std::move(frame), description_);
  }

  const std::shared_ptr<Neighbor> server_;
  const std::shared_ptr<Connection> connection_;
  const std::shared_ptr<Exchange> exchange_;
  SharedSender::Sent sent_;
  const CallDescription description_;
  const Clock::time_point end_;
  bool taken_ = false;
};

}  // namespace

Neighbor::Neighbor(const ChannelOptions& options, std::string credential)
    : options_{.credential = std::move(credential),
               .caller = options.caller,
               .largest_reply = options.largest_message,
               .silence_limit = options.silence_limit,
               .areas = std::make_shared<PeerAreas>()} {}

void Neighbor::met(std::string_view process, std::string_view socket) {
  const std::optional<ProcessIdentity> identity = neighbor(process);
  const std::lock_guard lock(mutex_);
  if (!identity) return server_.reset();
  if (server_ && server_->connection && server_->socket == socket) return;
  const auto address = UnixAddress::parse(socket);
  server_ = std::make_shared<const Server>(Server{
      .process = *identity,
      .socket = std::string(socket),
      .connection = address ? Connection::open(*address, options_) : nullptr,
  });
}

void Neighbor::lost() {
  const std::lock_guard lock(mutex_);
  server_.reset();
}

std::shared_ptr<const Neighbor::Server> Neighbor::server() const {
  const std::lock_guard lock(mutex_);
  return server_;
}

SharedSender::Sent Neighbor::share(Frame& request, std::chrono::milliseconds limit) {
  const std::shared_ptr<const Server> known = server();
  if (!known) return {};
  return sender_.share(request, {known->process, Clock::now() + limit});
}

std::shared_ptr<std::byte> Neighbor::reserve(std::size_t bytes) {
  return server() ? sender_.reserve(bytes) : nullptr;
}

std::unique_ptr<Call> Neighbor::start(const std::string& method, const Frame& request,
                                      const SharedSender::Sent& sent,
                                      const CallDescription& description) {
  const std::shared_ptr<const Server> known = server();
  if (!known || !known->connection) return nullptr;
  std::shared_ptr<Exchange> exchange =
      known->connection->start(method, request, description.limit());
  if (!exchange) {
    if (known->connection->is_lost()) lost();
    return nullptr;
  }
  return std::make_unique<UnixCall>(shared_from_this(), known->connection, std::move(exchange),
                                    sent, description);
}

Message Neighbor::message_of(Frame reply, const CallDescription& description) {
  try {
    take_shared(reply, *options_.areas);
  } catch (const DataLossError& error) {
    description.fail_damaged(error.what());
  }
  return description.message_of(std::move(reply), options_.largest_reply);
}

}  // namespace tandem::rpc
