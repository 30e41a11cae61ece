#include "hvd/request.h"

#include "core/bytes.h"

namespace tandem::hvd {
namespace {

constexpr std::string_view kUpper[] = {"ALLREDUCE", "ALLGATHER",     "BROADCAST",
                                       "ALLTOALL",  "REDUCESCATTER", "BARRIER"};
constexpr std::string_view kTitles[] = {"Allreduce", "Allgather",     "Broadcast",
                                        "Alltoall",  "Reducescatter", "Barrier"};
constexpr std::string_view kOps[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};

void add_numbers(ByteWriter<std::vector<std::byte>>& out, std::span<const std::int64_t> numbers) {
  out.add(static_cast<std::uint32_t>(numbers.size()));
  for (std::int64_t number : numbers) out.add(number);
}

std::vector<std::int64_t> read_numbers(ByteReader& in) {
  const auto count = in.number<std::uint32_t>();
  if (count > in.left() / sizeof(std::int64_t)) in.refuse("expected fewer numbers");
  std::vector<std::int64_t> values(count);
  for (std::int64_t& value : values) value = in.number<std::int64_t>();
  return values;
}

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
  ByteWriter out(bytes);
  out.add(request.kind, request.op, request.on_gpu, request.absent, request.root, request.prescale,
          request.postscale);
  out.add(request.name).add(static_cast<std::uint32_t>(request.dtypes.size()));
  for (std::size_t i = 0; i < request.dtypes.size(); ++i) {
    out.add(request.dtypes[i]);
    add_numbers(out, request.shapes[i].span());
  }
  add_numbers(out, request.splits);
}

std::vector<Request> parse_requests(std::span<const std::byte> bytes) {
  std::vector<Request> requests;
  ByteReader in("[hvd] the request of a rank", bytes);
  while (in.left() > 0) {
    Request& request = requests.emplace_back();
    request.kind = in.choice(last_value(RequestKind()));
    request.op = in.choice(last_value(Op()));
    request.on_gpu = in.number<std::uint8_t>() != 0;
    request.absent = in.number<std::uint8_t>() != 0;
    request.root = in.number<std::int32_t>();
    request.prescale = in.number<double>();
    request.postscale = in.number<double>();
    request.name = in.text();
    const auto tensors = in.number<std::uint32_t>();
    for (std::uint32_t i = 0; i < tensors; ++i) {
      request.dtypes.push_back(in.choice(last_value(DType())));
      const std::vector<std::int64_t> sizes = read_numbers(in);
      if (sizes.size() > static_cast<std::size_t>(kMaxRank)) in.refuse("expected fewer axes");
      request.shapes.emplace_back(std::span<const std::int64_t>(sizes));
    }
    request.splits = read_numbers(in);
  }
  return requests;
}

}  // namespace tandem::hvd
