#include "rpc/shared_memory/shared_memory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <utility>

#include "core/log.h"
#include "core/status.h"

namespace tandem::rpc {
namespace {

struct SharedAttachment {
  std::uint32_t index = 0;
  BlockPlace place;
};

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

std::string text_of(const std::string& area, const std::vector<SharedAttachment>& attachments) {
  std::string text;
  append(text, static_cast<std::uint32_t>(attachments.size()));
  append(text, static_cast<std::uint32_t>(area.size()));
  text += area;
  for (const auto& [index, place] : attachments) {
    append(text, index);
    append(text, place.offset);
    append(text, place.sequence);
    append(text, place.bytes);
  }
  return text;
}

// Reads numbers and text from the beginning of a string.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  std::string_view text(std::size_t size) {
    if (size > rest_.size())
      fail<DataLossError>(
          "[rpc] a received message is damaged: it ends within the places of its "
          "attachments");
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, text(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

struct SharedPart {
  std::string area;
  std::vector<SharedAttachment> attachments;
  std::size_t text_bytes = 0;
};

SharedPart parse(const Message& message) {
  SharedPart part;
  Reader reader(message.header);
  const auto count = reader.number<std::uint32_t>();
  part.area = reader.text(reader.number<std::uint32_t>());
  for (std::uint32_t i = 0; i < count; ++i) {
    SharedAttachment& each = part.attachments.emplace_back();
    each.index = reader.number<std::uint32_t>();
    each.place.offset = reader.number<std::uint64_t>();
    each.place.sequence = reader.number<std::uint64_t>();
    each.place.bytes = reader.number<std::uint64_t>();
    const bool follows = i == 0 || each.index > part.attachments[i - 1].index;
    if (!follows || each.index >= message.attachments.size() ||
        !message.attachments[each.index].bytes.empty())
      fail<DataLossError>(
          "[rpc] a received message is damaged: attachment {} of {} cannot be in "
          "shared memory",
          each.index, message.attachments.size());
  }
  part.text_bytes = message.header.size() - reader.rest().size();
  return part;
}

// Equal for two processes that see the same files in /dev/shm, and have the same network: two
// network namespaces are two hosts.
std::string host_text() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat memory {
  }, network{};
  if (boot.empty() || stat("/dev/shm", &memory) != 0 || stat("/proc/self/ns/net", &network) != 0)
    return {};
  return fmt::format("{}/{}-{}/{}/{}", boot, memory.st_dev, memory.st_ino, network.st_ino,
                     geteuid());
}

std::string make_announcement() {
  const std::string host = host_text();
  if (host.empty()) return {};
  const ProcessIdentity self = ProcessIdentity::self();
  return fmt::format("{}:{}-{}-{}", host, self.pid, self.start_time, self.space);
}

std::optional<ProcessIdentity> parse_identity(std::string_view text) {
  const auto next = [&]<class T>(T& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with('-')) text.remove_prefix(1);
    return true;
  };
  ProcessIdentity identity;
  if (!next(identity.pid) || !next(identity.start_time) || !next(identity.space) || !text.empty())
    return std::nullopt;
  return identity;
}

}  // namespace

const std::string& announcement() {
  static const auto& text = *new const std::string(make_announcement());
  return text;
}

std::optional<ProcessIdentity> neighbor(std::string_view announced) {
  const std::string& own = announcement();
  const std::string_view host = std::string_view(own).substr(0, own.find(':') + 1);
  if (own.empty() || !announced.starts_with(host)) return std::nullopt;
  return parse_identity(announced.substr(host.size()));
}

void SharedSender::Sent::revoke() {
  for (const BlockPlace& place : places_) area_->revoke(place);
}

std::shared_ptr<Area> SharedSender::area() {
  const std::lock_guard lock(mutex_);
  if (area_ || failed_) return area_;
  try {
    area_ = std::make_shared<Area>();
  } catch (const Error& error) {
    failed_ = true;
    logging::warn("[rpc] tasks of this host exchange tensors over TCP: {}", error.what());
  }
  return area_;
}

std::shared_ptr<std::byte> SharedSender::reserve(std::size_t bytes) {
  const std::shared_ptr<Area> place = bytes < kLeast ? nullptr : area();
  return place ? place->reserve(bytes) : nullptr;
}

SharedSender::Sent SharedSender::share(Frame& frame, const Delivery& delivery) {
  Sent sent;
  std::vector<Attachment>& attachments = frame.message.attachments;
  std::vector<SharedAttachment> shared;
  for (std::size_t i = 0; i < attachments.size(); ++i) {
    if (attachments[i].bytes.size() < kLeast) continue;
    if (!sent.area_) sent.area_ = area();
    if (!sent.area_) return sent;
    const auto place = sent.area_->put(attachments[i].bytes, delivery);
    if (!place) continue;
    shared.push_back({static_cast<std::uint32_t>(i), *place});
    sent.places_.push_back(*place);
    attachments[i] = {};
  }
  if (shared.empty()) return sent;
  frame.outcome |= kInSharedMemory;
  frame.message.header.insert(0, text_of(sent.area_->name(), shared));
  return sent;
}

void take_shared(Frame& frame, PeerAreas& areas) {
  if ((frame.outcome & kInSharedMemory) == 0) return;
  frame.outcome &= ~kInSharedMemory;
  const SharedPart part = parse(frame.message);
  for (const auto& [index, place] : part.attachments)
    frame.message.attachments[index] = areas.take(part.area, place);
  frame.message.header.erase(0, part.text_bytes);
}

}  // namespace tandem::rpc
