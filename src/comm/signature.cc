#include "comm/signature.h"

#include <algorithm>

#include "core/status.h"

namespace tandem {

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce",     "reduce",     "broadcast", "all_gather",
                                         "reduce_scatter", "all_to_all", "barrier",   "exchange",
                                         "send",           "recv"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "mean", "min", "max", "product", "tree sum"};
  return kNames[static_cast<std::size_t>(op)];
}

Signature make_signature(CollectiveKind kind, std::span<const Buffer> parts, ReduceOp op,
                         int root) {
  Signature signature{.kind = kind,
                      .dtype = parts.empty() ? uint8 : parts.front().dtype,
                      .op = op,
                      .root = root,
                      .parts = static_cast<std::uint32_t>(parts.size())};
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a on 64-bit words
  for (const Buffer& part : parts) {
    hash = (hash ^ static_cast<std::uint64_t>(part.count)) * 0x100000001b3u;
    hash = (hash ^ static_cast<std::uint64_t>(part.dtype)) * 0x100000001b3u;
    signature.count = kind == CollectiveKind::kAllToAll ? std::max(signature.count, part.count)
                                                        : signature.count + part.count;
  }
  signature.layout = kind == CollectiveKind::kAllToAll ? 0 : hash;
  return signature;
}

bool matches(const Signature& a, const Signature& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.parts == b.parts && a.layout == b.layout &&
         (a.count == b.count || a.kind == CollectiveKind::kAllToAll);
}

RankNames RankNames::of(std::span<const int> ranks) const {
  std::vector<int> names;
  for (int rank : ranks) names.push_back((*this)[rank]);
  return RankNames(std::move(names));
}

std::string describe(const Signature& signature, const Label& label, const RankNames& names) {
  std::string text(name_of(signature.kind));
  switch (signature.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kReduce:
    case CollectiveKind::kReduceScatter: text += fmt::format(" ({})", name_of(signature.op)); break;
    default: break;
  }
  if (signature.kind == CollectiveKind::kAllToAll)
    text += fmt::format(" of {}", name_of(signature.dtype));
  else if (signature.kind != CollectiveKind::kBarrier)
    text += fmt::format(" of {} {} in {} part{}", signature.count, name_of(signature.dtype),
                        signature.parts, signature.parts == 1 ? "" : "s");
  switch (signature.kind) {
    case CollectiveKind::kReduce:
    case CollectiveKind::kSend: text += fmt::format(" to rank {}", names[signature.root]); break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kRecv: text += fmt::format(" from rank {}", names[signature.root]); break;
    default: break;
  }
  if (!label.name.empty()) text += fmt::format(", '{}'", label.name);
  if (label.step >= 0) text += fmt::format(", step {}", label.step);
  return text;
}

std::string list_ranks(std::span<const int> ranks, const RankNames& names) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += fmt::format("{} {}",
                        i == 0                  ? ""
                        : i + 1 == ranks.size() ? " and"
                                                : ",",
                        names[ranks[i]]);
  return text;
}

std::string describe_mismatch(std::uint64_t sequence, std::span<const RankCall> calls,
                              const RankNames& names) {
  std::string text = fmt::format(
      "[{}] ranks diverged at collective {}: ", name_of(calls.front().signature.kind), sequence);
  std::vector<bool> described(calls.size());
  std::vector<std::string> descriptions;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (described[i]) continue;
    std::vector<int> same;
    for (std::size_t j = i; j < calls.size(); ++j)
      if (calls[i].signature == calls[j].signature) {
        same.push_back(calls[j].rank);
        described[j] = true;
      }
    const std::string description = describe(calls[i].signature, calls[i].label, names);
    const bool alike =
        std::find(descriptions.begin(), descriptions.end(), description) != descriptions.end();
    text += fmt::format("{}{} called {}{}", i == 0 ? "" : ", ", list_ranks(same, names),
                        description, alike ? " with other sizes" : "");
    descriptions.push_back(description);
  }
  return text + "; every rank must call the same collectives in the same order";
}

}  // namespace tandem
