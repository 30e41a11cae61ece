#include "comm/gloo/module/mesh.h"

#include <arpa/inet.h>
#include <gloo/common/logging.h>
#include <gloo/transport/tcp/attr.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "comm/gloo/module/gloo_transfers.h"
#include "comm/gloo/module/sigpipe.h"
#include "comm/host_identity.h"
#include "comm/process/first_failure.h"
#include "comm/rendezvous/consultation.h"
#include "comm/rendezvous/handshake.h"
#include "comm/stall.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem::gloo_backend {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook(100);  // interval of checks of the membership while ranks connect
// The same for the store, which all ranks poll.
constexpr milliseconds kLookAtStore(500);
constexpr auto kParting = std::chrono::seconds(30);  // as long as a silent rank counts as alive
constexpr milliseconds kQuiet(500);  // what a rank has sent before it died takes less to arrive
constexpr auto kGrace = std::chrono::seconds(5);  // from a rank's time limit to rank 0's
constexpr std::string_view kFailed = "!";         // instead of a rank's address

std::string number_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

// Empty for an address that other hosts cannot reach.
std::string text_of(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    if ((ntohl(ip.s_addr) >> 24) == IN_LOOPBACKNET) return "";
  } else if (address->sa_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) return "";
  } else {
    return "";
  }
  return number_of(address);
}

// The address of this host from which `master` is reached, as a number. Empty if there is none or
// it is a loopback address. Connecting a datagram socket only queries the routing table; it sends
// nothing.
std::string address_towards(const std::string& master) {
  if (master.empty()) return "";
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(master.c_str(), "9", &hints, &found) != 0) return "";
  std::string text;
  for (const addrinfo* at = found; at && text.empty(); at = at->ai_next) {
    const int socket = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage mine = {};
    socklen_t length = sizeof(mine);
    if (socket >= 0 && connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
        getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &length) == 0)
      text = text_of(reinterpret_cast<const sockaddr*>(&mine));
    if (socket >= 0) close(socket);
  }
  freeaddrinfo(found);
  return text;
}

// The address of the first interface that is up and not a loopback; empty if there is none.
std::string first_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string text;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = all; at && text.empty(); at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && (at->ifa_flags & IFF_UP) &&
          !(at->ifa_flags & IFF_LOOPBACK))
        text = text_of(at->ifa_addr);
  freeifaddrs(all);
  return text;
}

// The first address of an interface; empty if the interface has none or does not exist.
std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string text;
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* at = all; at && text.empty(); at = at->ifa_next)
      if (at->ifa_addr && at->ifa_addr->sa_family == family && name == at->ifa_name)
        text = number_of(at->ifa_addr);
  freeifaddrs(all);
  return text;
}

// One per address, with its thread; all groups of the process share it.
std::shared_ptr<GlooDevice> device_at(const GlooAddress& where) {
  static std::mutex mutex;
  static auto& devices = *new std::map<std::string, std::weak_ptr<GlooDevice>>;
  const std::lock_guard lock(mutex);
  auto& known = devices[where.interface + "/" + where.address];
  if (auto device = known.lock()) return device;
  gloo::transport::tcp::attr attributes;
  attributes.iface = where.interface;
  attributes.hostname = where.address;
  try {
    auto device = std::make_shared<GlooDevice>(gloo::transport::tcp::CreateDeviceAttr(attributes));
    known = device;
    return device;
  } catch (const ResourceExhaustedError&) {
    throw;
  } catch (const std::exception& error) {
    fail<InvalidArgumentError>(
        "[gloo] cannot listen on {} '{}': {}", where.interface.empty() ? "address" : "interface",
        where.interface.empty() ? where.address : where.interface, error.what());
  }
}

std::string address_of(const GlooAddress& where) {
  return where.interface.empty() ? where.address : address_of_interface(where.interface);
}

// A random key that a peer must know to connect.
std::string new_key() {
  std::string text;
  for (const char byte : random_bytes(16))
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string name_of_host() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

Mesh::Mesh(GroupOptions options, GlooAddress where, std::function<void()> on_event)
    : options_(std::move(options)), where_(std::move(where)), on_event_(std::move(on_event)) {
  const NoSigpipe quiet;
  // keeps connections open until the others have been informed of a failure
  std::optional<Wiring> wiring;
  try {
    join(wiring);
  } catch (const Error& error) {
    publish_failed_start(error);
    throw;
  }
}

void Mesh::join(std::optional<Wiring>& wiring) {
  choose_address();
  device_ = device_at(where_);
  Socket listener = listen_on({address_of(where_), 0});
  const ListenAddress mine = {name_of_host(), getpid(), endpoint_of(listener), new_key()};
  options_.store->set(key("at", rank()), to_string(mine));
  wiring.emplace(std::move(listener), mine, rank(), size(), wait_for_parent_address());
  connect(*wiring);
  context_ = make_connected_context(device_, rank(), wiring->take_sockets(), options_.time_limit,
                                    on_event_);
  post_sentinels();
  options_.store->remove(key("at", rank()));  // every rank is connected, so no rank needs it
  const auto here = std::count_if(peers_.begin(), peers_.end(), [&](const ListenAddress& peer) {
    return peer.host == peers_[static_cast<std::size_t>(rank())].host;
  });
  oversubscribed_ = 2 * here > sysconf(_SC_NPROCESSORS_ONLN);
}

// Ranks that wait for this rank's keys in the store find the error there. After a timeout or a
// failure of the job, the other ranks have the same information and need none.
void Mesh::publish_failed_start(const Error& error) const noexcept {
  try {
    if (dynamic_cast<const DeadlineExceededError*>(&error) != nullptr) return;
    if (options_.membership && options_.membership->failed()) return;
    if (find(key("failure")).empty())
      publish_failure(failure_of(error), fmt::format("rank {} could not join group '{}': {}",
                                                     names()[rank()], options_.name, error.what()));
    options_.store->set(key("at", rank()), kFailed);
  } catch (const std::exception& other) {
    logging::debug("[gloo] could not publish the failure of group '{}' to its other ranks: {}",
                   options_.name, other.what());
  }
}

Mesh::~Mesh() {
  const NoSigpipe quiet;
  // The last rank to leave removes the remaining keys from the store.
  try {
    options_.store->set(key("left", rank()), "1");
    if (options_.store->add(key("gone"), 1) == size()) {
      for (int peer = 0; peer < size(); ++peer) options_.store->remove(key("left", peer));
      options_.store->remove(key("failure"));
      options_.store->remove(key("gone"));
    }
  } catch (const Error& error) {
    // The store ended with its rank; peers learn of that instead.
    logging::debug("[gloo] no goodbye from group '{}': {}", options_.name, error.what());
  }
  wait_until_received();
}

// A closed connection discards what the peer's host has not received. Peers may still need that for
// this rank's last collectives.
void Mesh::wait_until_received() const noexcept {
  const auto deadline = Clock::now() + std::min<Clock::duration>(kParting, options_.time_limit);
  auto nap = std::chrono::microseconds(50);
  while (context_->has_unreceived() && Clock::now() < deadline &&
         !(options_.membership && options_.membership->failed())) {
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(5000));
  }
}

std::string Mesh::key(std::string_view what) const {
  return fmt::format("gloo/{}/{}", options_.name, what);
}

std::string Mesh::key(std::string_view what, int rank) const {
  return fmt::format("gloo/{}/{}/{}", options_.name, what, rank);
}

std::string Mesh::find(const std::string& key) const {
  try {
    return options_.store->get(key, Clock::now());
  } catch (const Error&) {
    return "";
  }
}

std::optional<ListenAddress> Mesh::wait_for_parent_address() const {
  if (rank() == 0) return std::nullopt;
  const int parent = TreeExchange::parent_of(rank());
  std::string text;
  try {
    // The store of a job checks the membership while it waits.
    text = get_or_warn(
        *options_.store, key("at", parent), Clock::now() + options_.time_limit,
        [&](milliseconds waited) { logging::warn("{}", describe_missing({parent}, waited)); });
  } catch (const DeadlineExceededError&) {
    fail_to_assemble({parent});
  }
  if (text != kFailed) return parse_listen_address(text);
  check_failure();
  fail<AbortedError>("[gloo] rank {} could not join group '{}'", names()[parent], options_.name);
}

std::string Mesh::describe_missing(const std::vector<int>& missing, milliseconds time) const {
  std::vector<int> here;
  for (int peer = 0; peer < size(); ++peer)
    if (std::find(missing.begin(), missing.end(), peer) == missing.end()) here.push_back(peer);
  return fmt::format("[gloo] {} did not join group '{}' within {} ms; {} {} waiting",
                     list_ranks(missing, names()), options_.name, time.count(),
                     list_ranks(here, names()), here.size() == 1 ? "is" : "are");
}

// Rank 0 finds the missing ranks and publishes them, because a quadratic number of requests would
// result if every rank looked for every other. If rank 0 publishes nothing, the others look
// themselves.
void Mesh::fail_to_assemble(std::vector<int> unconnected) const {
  check_failure();
  if (rank() != 0 && !find(key("at", 0)).empty()) {
    try {
      options_.store->get(key("failure"), Clock::now() + kGrace);
    } catch (const DeadlineExceededError&) {
      // It has time left, or is stopped.
    }
  }
  check_failure();
  const std::vector<int> missing = absent();
  const std::string text =
      describe_missing(missing.empty() ? unconnected : missing, options_.time_limit);
  if (rank() == 0) publish_failure(GroupFailure::kDeadlineExceeded, text);
  options_.store->remove(key("at", rank()));
  throw DeadlineExceededError(text);
}

std::vector<int> Mesh::absent() const {
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer)
    if (find(key("at", peer)).empty()) ranks.push_back(peer);
  return ranks;
}

bool Mesh::ask_for_hosts() const {
  const auto judge = [](const std::vector<std::string>& hosts) {
    const bool one = std::all_of(hosts.begin(), hosts.end(),
                                 [&](const auto& host) { return host == hosts.front(); });
    return std::vector<std::string>(hosts.size(), one ? "one" : "several");
  };
  const std::string hosts = consult(
      {.store = *options_.store,
       .name = key("hosts"),
       .rank = rank(),
       .size = size(),
       .limit = options_.time_limit,
       .describe_missing = [this](const auto& missing,
                                  milliseconds time) { return describe_missing(missing, time); }},
      host_identity(), judge);
  return hosts == "one";
}

void Mesh::choose_address() {
  if (where_.interface.empty() && where_.address.empty())
    where_.interface = env_string("GLOO_SOCKET_IFNAME").value_or("");
  if (!where_.interface.empty() || !where_.address.empty()) return;
  if (!where_.on_one_host) where_.on_one_host = ask_for_hosts();
  if (*where_.on_one_host) {
    where_.address = "127.0.0.1";
    return;
  }
  where_.address = address_towards(where_.master);
  if (where_.address.empty()) where_.address = first_address();
  if (where_.address.empty())
    fail<UnavailableError>(
        "[gloo] the ranks of group '{}' are on several hosts, and this one ({}) has no network "
        "interface but loopback",
        options_.name, name_of_host());
}

void Mesh::connect(Wiring& wiring) {
  const auto deadline = Clock::now() + options_.time_limit;
  auto look_at_store = Clock::now() + kLookAtStore;
  LongWait wait;
  try {
    while (!wiring.advance(kLook)) {
      if (options_.membership && options_.membership->failed())
        options_.membership->throw_failure();
      if (Clock::now() >= look_at_store) {
        check_failure();
        // A rank whose parent is missing warns of it. The others are leaves, or wait for them.
        if (rank() == 0)
          wait.look([&](milliseconds time) {
            const std::vector<int> missing = absent();
            return describe_missing(missing.empty() ? wiring.missing() : missing, time);
          });
        // A far store takes long to answer, and this rank connects to no peer meanwhile.
        const auto took = Clock::now() - look_at_store;
        look_at_store = Clock::now() + std::clamp<Clock::duration>(8 * took, kLookAtStore, kGrace);
      }
      if (Clock::now() >= deadline) fail_to_assemble(wiring.missing());
    }
    peers_ = wiring.addresses();
  } catch (const Disconnected& broken) {
    peers_ = wiring.addresses();
    throw_broken(broken.rank, fmt::format("joining group '{}'", options_.name), broken.reason);
  }
}

void Mesh::post_sentinels() {
  sentinels_.resize(static_cast<std::size_t>(size()));
  left_.resize(sentinels_.size());
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    auto sentinel = context_->createUnboundBuffer(&nothing_, 1);
    try {
      sentinel->recv(peer, kSentinelSlot);
      sentinels_[static_cast<std::size_t>(peer)] = std::move(sentinel);
    } catch (const std::exception& error) {
      // It left again. Whether in good order is checked when a call waits for it.
      logging::debug("[gloo] rank {} of group '{}': {}", peer, options_.name, error.what());
    }
  }
}

void Mesh::check_failure() const {
  const std::string failure = find(key("failure"));
  if (!failure.empty())
    throw_failure(static_cast<GroupFailure>(failure.front() - '0'), failure.substr(1));
}

void Mesh::expect_own_connections() const {
  if (!context_ || !context_->lost_by_this_process()) return;
  fail<UnavailableError>(
      "[gloo] rank {} has lost its connections in group '{}': other code of its process (pid {} on "
      "{}) has closed descriptors that it did not open",
      names()[rank()], options_.name, getpid(), name_of_host());
}

void Mesh::throw_broken(int peer, const std::string& what, const std::string& reason) const {
  expect_own_connections();
  check_failure();
  throw_first_failure(options_.membership.get(), [this] { check_failure(); });
  const ListenAddress& other = peers_[static_cast<std::size_t>(peer)];
  if (!find(key("left", peer)).empty())
    fail<AbortedError>("rank {} (pid {} on {}) has left the group; rank {} still waits for it: {}",
                       names()[peer], other.pid, other.host, names()[rank()], what);
  fail<AbortedError>(
      "the connection to rank {} (pid {} on {}) broke; rank {} was waiting for it: {} ({})",
      names()[peer], other.pid, other.host, names()[rank()], what, reason);
}

void Mesh::check_connections(const std::function<bool(int peer)>& needs,
                             const std::string& waiting_for) {
  expect_own_connections();
  for (int peer = 0; peer < size(); ++peer)
    if (peer != rank()) check_connection(peer, needs, waiting_for);
}

void Mesh::check_connection(int peer, const std::function<bool(int peer)>& needs,
                            const std::string& waiting_for) {
  const auto at = static_cast<std::size_t>(peer);
  std::string reason = "it closed the connection";
  try {
    if (sentinels_[at] && !is_complete(*sentinels_[at], false)) return;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  const bool needed = needs(peer);
  if (left_[at] && !needed) return;
  const auto now = Clock::now();
  if (!needed && find(key("failure")).empty()) {
    if (!find(key("left", peer)).empty())
      left_[at] = true;
    else if (now - broken_.try_emplace(peer, now).first->second > kQuiet)
      throw_broken(peer, waiting_for, reason);
    return;
  }
  throw_broken(peer, waiting_for, reason);
}

void Mesh::publish_failure(GroupFailure failure, const std::string& text) const {
  options_.store->set(
      key("failure"),
      fmt::format("{}{}", static_cast<char>('0' + static_cast<int>(failure)), text));
}

void Mesh::close() noexcept {
  if (context_) context_->close();
}

}  // namespace tandem::gloo_backend
