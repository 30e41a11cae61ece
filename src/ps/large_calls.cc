#include "ps/large_calls.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/random_number.h"
#include "core/status.h"
#include "ps/proto/large_calls.pb.h"
#include "ps/tensor_message.h"
#include "rpc/frame.h"

namespace tandem::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSendPart = "LargeCall/SendPart";
constexpr const char* kFetchPart = "LargeCall/FetchPart";
constexpr std::chrono::minutes kKept{10};
// Before the header of a LargeMessage. No protocol buffer begins with this byte.
constexpr char kLarge = 7;

rpc::Message large_message(const proto::LargeMessage& header) {
  return {.header = kLarge + header.SerializeAsString()};
}

bool is_large(const rpc::Message& message) {
  return !message.header.empty() && message.header[0] == kLarge;
}

proto::LargeMessage parse_large(const rpc::Message& message, const char* what) {
  proto::LargeMessage header;
  if (!header.ParseFromArray(message.header.data() + 1,
                             static_cast<int>(message.header.size() - 1)))
    fail_parsing(what, message.header.size());
  return header;
}

// Memory for an attachment, of which parts are written.
struct Buffer {
  explicit Buffer(std::size_t size_)
      : size(size_),
        bytes(static_cast<std::byte*>(::operator new(std::max<std::size_t>(size_, 1),
                                                     std::align_val_t(rpc::kAlignment))),
              [](std::byte* made) { ::operator delete(made, std::align_val_t(rpc::kAlignment)); }) {
  }
  rpc::Attachment attachment() const { return {.owner = bytes, .bytes = {bytes.get(), size}}; }

  const std::size_t size;
  const std::shared_ptr<std::byte> bytes;
};

void check_part(const proto::PartRequest& part, std::size_t size, const char* what) {
  if (part.offset() > size || part.bytes() > size - part.offset())
    fail<DataLossError>("[{}] {} bytes from {} of an attachment of {} bytes", what, part.bytes(),
                        part.offset(), size);
}

// The parts of attachments of these sizes, in their order.
std::vector<proto::PartRequest> parts_of(const std::vector<std::size_t>& sizes, std::uint64_t id,
                                         std::size_t part) {
  std::vector<proto::PartRequest> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    for (std::size_t offset = 0; offset < sizes[i]; offset += part) {
      proto::PartRequest& request = parts.emplace_back();
      request.set_id(id);
      request.set_attachment(static_cast<std::uint32_t>(i));
      request.set_size(sizes[i]);
      request.set_offset(offset);
      request.set_bytes(std::min(part, sizes[i] - offset));
    }
  return parts;
}

class LargeCall final : public rpc::Call {
 public:
  LargeCall(std::shared_ptr<rpc::Channel> channel, const LargeCallOptions& sizes,
            std::string method, rpc::Message request, const rpc::CallOptions& options)
      : channel_(std::move(channel)),
        sizes_(sizes),
        method_(std::move(method)),
        options_(options),
        request_(std::move(request)) {
    if (rpc::frame_bytes(request_) <= sizes_.whole) {
      call_ = start(method_, std::move(request_));
      return;
    }
    std::vector<std::size_t> of_attachments;
    for (const rpc::Attachment& each : request_.attachments)
      of_attachments.push_back(each.bytes.size());
    id_ = random_number();
    parts_ = parts_of(of_attachments, id_, sizes_.part);
    while (calls_.size() < sizes_.in_flight && started_ < parts_.size()) send_next();
  }
  bool done() const override { return call_ && call_->call->done(); }
  rpc::Message wait() override {
    if (!call_) send();
    rpc::Message reply = call_->call->wait();
    return is_large(reply) ? fetch(parse_large(reply, method_.c_str())) : reply;
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (rpc::Call* call : under_way_) call->cancel();
  }

 private:
  // A call that cancel() reaches.
  struct Started {
    Started(LargeCall& of_, std::unique_ptr<rpc::Call> call_) : of(of_), call(std::move(call_)) {
      const std::lock_guard lock(of.mutex_);
      of.under_way_.insert(call.get());
      if (of.cancelled_) call->cancel();
    }
    ~Started() {
      const std::lock_guard lock(of.mutex_);
      of.under_way_.erase(call.get());
    }
    Started(const Started&) = delete;
    Started& operator=(const Started&) = delete;

    LargeCall& of;
    std::unique_ptr<rpc::Call> call;
  };

  std::unique_ptr<Started> start(const std::string& method, rpc::Message message) {
    return std::make_unique<Started>(*this, channel_->start(method, std::move(message), options_));
  }

  void send_next() {
    const proto::PartRequest& part = parts_[started_++];
    const rpc::Attachment& whole = request_.attachments[part.attachment()];
    rpc::Message message = message_of(part);
    message.attachments.push_back(
        {.owner = whole.owner, .bytes = whole.bytes.subspan(part.offset(), part.bytes())});
    calls_.push_back(start(kSendPart, std::move(message)));
  }
  void send() {
    while (!calls_.empty()) {
      wait_for_part(kSendPart);
      if (started_ < parts_.size()) send_next();
    }
    proto::LargeMessage header;
    header.set_id(id_);
    header.set_header(std::move(request_.header));
    for (const rpc::Attachment& each : request_.attachments) header.add_sizes(each.bytes.size());
    request_ = {};
    call_ = start(method_, large_message(header));
  }

  rpc::Message fetch(const proto::LargeMessage& header) {
    if (header.id() == 0) forgotten();
    const std::vector<std::size_t> sizes(header.sizes().begin(), header.sizes().end());
    std::vector<Buffer> buffers(sizes.begin(), sizes.end());
    const std::vector<proto::PartRequest> parts = parts_of(sizes, header.id(), sizes_.part);
    std::size_t started = 0, fetched = 0;
    while (fetched < parts.size()) {
      while (calls_.size() < sizes_.in_flight && started < parts.size())
        calls_.push_back(start(kFetchPart, message_of(parts[started++])));
      const proto::PartRequest& part = parts[fetched++];
      const rpc::Message reply = wait_for_part(kFetchPart);
      if (reply.attachments.size() != 1 || reply.attachments[0].bytes.size() != part.bytes())
        fail_parsing(kFetchPart, reply.header.size());
      std::memcpy(buffers[part.attachment()].bytes.get() + part.offset(),
                  reply.attachments[0].bytes.data(), part.bytes());
    }
    rpc::Message message{.header = header.header()};
    for (const Buffer& buffer : buffers) message.attachments.push_back(buffer.attachment());
    return message;
  }

  // The reply of the first of the calls.
  rpc::Message wait_for_part(const char* method) {
    const std::unique_ptr<Started> first = std::move(calls_.front());
    calls_.pop_front();
    rpc::Message reply = first->call->wait();
    if (!parse<proto::PartReply>(reply, method).known()) forgotten();
    return reply;
  }
  [[noreturn]] void forgotten() const {
    throw rpc::PeerUnavailableError(
        fmt::format("the server does not know the parts of a call of '{}' any more", method_));
  }

  const std::shared_ptr<rpc::Channel> channel_;
  const LargeCallOptions sizes_;
  const std::string method_;
  const rpc::CallOptions options_;
  rpc::Message request_;
  std::uint64_t id_ = 0;
  std::vector<proto::PartRequest> parts_;  // of the request
  std::size_t started_ = 0;                // of these
  std::mutex mutex_;                       // guards the following
  std::set<rpc::Call*> under_way_;
  bool cancelled_ = false;
  std::deque<std::unique_ptr<Started>> calls_;  // parts under way
  std::unique_ptr<Started> call_;               // the call itself
};

class LargeChannel final : public rpc::Channel {
 public:
  LargeChannel(std::shared_ptr<rpc::Channel> channel, const LargeCallOptions& options)
      : channel_(std::move(channel)), options_(options) {}

  std::unique_ptr<rpc::Call> start(const std::string& method, rpc::Message request,
                                   const rpc::CallOptions& options) override {
    return std::make_unique<LargeCall>(channel_, options_, method, std::move(request), options);
  }

 private:
  const std::shared_ptr<rpc::Channel> channel_;
  const LargeCallOptions options_;
};

}  // namespace

// Messages of which not all parts have been transferred.
class LargeCallServer::Messages {
 public:
  explicit Messages(const LargeCallOptions& options) : options_(options) {}

  rpc::Message take_part(const rpc::Message& message) {
    const auto part = parse<proto::PartRequest>(message, kSendPart);
    if (message.attachments.size() != 1 || message.attachments[0].bytes.size() != part.bytes())
      fail_parsing(kSendPart, message.header.size());
    check_part(part, part.size(), kSendPart);
    std::shared_ptr<Buffer> buffer;
    {
      const std::lock_guard lock(mutex_);
      remove_old();
      Kept& kept = kept_[part.id()];
      kept.used = Clock::now();
      std::shared_ptr<Buffer>& of_attachment = kept.buffers[part.attachment()];
      if (!of_attachment) of_attachment = std::make_shared<Buffer>(part.size());
      buffer = of_attachment;
    }
    if (buffer->size != part.size()) fail_parsing(kSendPart, message.header.size());
    std::memcpy(buffer->bytes.get() + part.offset(), message.attachments[0].bytes.data(),
                part.bytes());
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(part.id());
    if (found != kept_.end()) found->second.transferred += part.bytes();
    return reply(found != kept_.end());
  }

  // The request for which the message stands. None: some of its parts are not known.
  std::optional<rpc::Message> whole(rpc::Message message, const std::string& method) {
    if (!is_large(message)) return message;
    proto::LargeMessage header = parse_large(message, method.c_str());
    Kept kept;
    {
      const std::lock_guard lock(mutex_);
      const auto node = kept_.extract(header.id());
      if (node.empty()) return std::nullopt;
      kept = std::move(node.mapped());
    }
    rpc::Message result{.header = std::move(*header.mutable_header())};
    std::size_t bytes = 0;
    for (int i = 0; i < header.sizes_size(); ++i) {
      std::shared_ptr<Buffer>& buffer = kept.buffers[static_cast<std::uint32_t>(i)];
      if (!buffer && header.sizes(i) > 0) return std::nullopt;
      if (!buffer) buffer = std::make_shared<Buffer>(0);
      if (buffer->size != header.sizes(i)) fail_parsing(method, message.header.size());
      bytes += buffer->size;
      result.attachments.push_back(buffer->attachment());
    }
    if (kept.transferred < bytes) return std::nullopt;
    return result;
  }

  // The message, or one that stands for it.
  rpc::Message in_parts(rpc::Message message) {
    if (rpc::frame_bytes(message) <= options_.whole) return message;
    proto::LargeMessage header;
    header.set_id(random_number());
    header.set_header(std::move(message.header));
    for (const rpc::Attachment& each : message.attachments) header.add_sizes(each.bytes.size());
    const std::lock_guard lock(mutex_);
    remove_old();
    Kept& kept = kept_[header.id()];
    kept.used = Clock::now();
    kept.attachments = std::move(message.attachments);
    return large_message(header);
  }

  rpc::Message give_part(const rpc::Message& message) {
    const auto part = parse<proto::PartRequest>(message, kFetchPart);
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(part.id());
    if (found == kept_.end()) return reply(false);
    Kept& kept = found->second;
    if (part.attachment() >= kept.attachments.size())
      fail_parsing(kFetchPart, message.header.size());
    const rpc::Attachment& whole = kept.attachments[part.attachment()];
    check_part(part, whole.bytes.size(), kFetchPart);
    rpc::Message result = reply(true);
    result.attachments.push_back(
        {.owner = whole.owner, .bytes = whole.bytes.subspan(part.offset(), part.bytes())});
    kept.used = Clock::now();
    kept.transferred += part.bytes();
    std::size_t bytes = 0;
    for (const rpc::Attachment& each : kept.attachments) bytes += each.bytes.size();
    if (kept.transferred >= bytes) kept_.erase(found);
    return result;
  }

  static rpc::Message forgotten() { return large_message({}); }

 private:
  struct Kept {
    std::map<std::uint32_t, std::shared_ptr<Buffer>> buffers;  // of a request
    std::vector<rpc::Attachment> attachments;                  // of a reply
    std::size_t transferred = 0;                               // bytes
    Clock::time_point used;
  };

  static rpc::Message reply(bool known) {
    proto::PartReply reply;
    reply.set_known(known);
    return message_of(reply);
  }
  void remove_old() {
    std::erase_if(
        kept_, [now = Clock::now()](const auto& entry) { return now - entry.second.used > kKept; });
  }

  const LargeCallOptions options_;
  std::mutex mutex_;  // guards the following
  std::map<std::uint64_t, Kept> kept_;
};

LargeCallServer::LargeCallServer(rpc::Server& server, const LargeCallOptions& options)
    : server_(server), messages_(std::make_shared<Messages>(options)) {
  server.handle(kSendPart, [messages = messages_](const rpc::CallContext&, rpc::Message request) {
    return messages->take_part(request);
  });
  server.handle(kFetchPart, [messages = messages_](const rpc::CallContext&, rpc::Message request) {
    return messages->give_part(request);
  });
}

void LargeCallServer::handle(const std::string& method, rpc::Handler handler) {
  server_.handle(method, [messages = messages_, method, handler = std::move(handler)](
                             const rpc::CallContext& context, rpc::Message request) {
    std::optional<rpc::Message> whole = messages->whole(std::move(request), method);
    if (!whole) return Messages::forgotten();
    return messages->in_parts(handler(context, std::move(*whole)));
  });
}

std::shared_ptr<rpc::Channel> large_calls(std::shared_ptr<rpc::Channel> channel,
                                          const LargeCallOptions& options) {
  return std::make_shared<LargeChannel>(std::move(channel), options);
}

}  // namespace tandem::ps
