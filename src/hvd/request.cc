#include "hvd/request.h"

#include <cstring>

#include "core/status.h"

namespace tandem::hvd {
namespace {

constexpr std::string_view kUpper[] = {"ALLREDUCE", "ALLGATHER",     "BROADCAST",
                                       "ALLTOALL",  "REDUCESCATTER", "BARRIER"};
constexpr std::string_view kTitles[] = {"Allreduce", "Allgather",     "Broadcast",
                                        "Alltoall",  "Reducescatter", "Barrier"};
constexpr std::string_view kOps[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};

template <class T>
void put(std::vector<std::byte>& bytes, const T& value) {
  const auto* begin = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof(T));
}

void put_numbers(std::vector<std::byte>& bytes, std::span<const std::int64_t> numbers) {
  put(bytes, static_cast<std::uint32_t>(numbers.size()));
  for (std::int64_t number : numbers) put(bytes, number);
}

class RequestReader {
 public:
  explicit RequestReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool at_end() const { return bytes_.empty(); }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)), sizeof(T));
    return value;
  }
  template <class E>
  E choice() {
    const auto value = number<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last_value(E()))) refuse();
    return static_cast<E>(value);
  }
  std::string text() {
    const auto length = number<std::uint32_t>();
    return {reinterpret_cast<const char*>(take(length)), length};
  }
  std::vector<std::int64_t> numbers() {
    const auto count = number<std::uint32_t>();
    if (count > bytes_.size() / sizeof(std::int64_t)) refuse();
    std::vector<std::int64_t> values;
    for (std::uint32_t i = 0; i < count; ++i) values.push_back(number<std::int64_t>());
    return values;
  }
  [[noreturn]] static void refuse() {
    throw DataLossError("[hvd] a rank sent requests that cannot be read");
  }

 private:
  const std::byte* take(std::size_t count) {
    if (count > bytes_.size()) refuse();
    const std::byte* begin = bytes_.data();
    bytes_ = bytes_.subspan(count);
    return begin;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace

std::string_view upper_name_of(RequestKind kind) { return kUpper[static_cast<std::size_t>(kind)]; }
std::string_view title_of(RequestKind kind) { return kTitles[static_cast<std::size_t>(kind)]; }
std::string_view name_of(Op op) { return kOps[static_cast<std::size_t>(op)]; }

std::int64_t Request::count(std::size_t tensor) const {
  std::int64_t count = 1;
  for (std::int64_t size : shapes[tensor]) count *= size;
  return count;
}

void append_request(std::vector<std::byte>& bytes, const Request& request) {
  put(bytes, request.kind);
  put(bytes, request.op);
  put(bytes, static_cast<std::uint8_t>(request.on_gpu));
  put(bytes, static_cast<std::uint8_t>(request.absent));
  put(bytes, request.root);
  put(bytes, request.prescale);
  put(bytes, request.postscale);
  put(bytes, static_cast<std::uint32_t>(request.name.size()));
  for (char c : request.name) put(bytes, c);
  put(bytes, static_cast<std::uint32_t>(request.dtypes.size()));
  for (std::size_t i = 0; i < request.dtypes.size(); ++i) {
    put(bytes, request.dtypes[i]);
    put_numbers(bytes, request.shapes[i].span());
  }
  put_numbers(bytes, request.splits);
}

std::vector<Request> parse_requests(std::span<const std::byte> bytes) {
  std::vector<Request> requests;
  RequestReader reader(bytes);
  while (!reader.at_end()) {
    Request& request = requests.emplace_back();
    request.kind = reader.choice<RequestKind>();
    request.op = reader.choice<Op>();
    request.on_gpu = reader.number<std::uint8_t>() != 0;
    request.absent = reader.number<std::uint8_t>() != 0;
    request.root = reader.number<std::int32_t>();
    request.prescale = reader.number<double>();
    request.postscale = reader.number<double>();
    request.name = reader.text();
    const auto tensors = reader.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < tensors; ++i) {
      request.dtypes.push_back(reader.choice<DType>());
      const std::vector<std::int64_t> sizes = reader.numbers();
      if (sizes.size() > static_cast<std::size_t>(kMaxRank)) RequestReader::refuse();
      request.shapes.emplace_back(std::span<const std::int64_t>(sizes));
    }
    request.splits = reader.numbers();
  }
  return requests;
}

}  // namespace tandem::hvd
