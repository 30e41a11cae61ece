#include "comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <set>
#include <span>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/descriptors.h"
#include "comm/rendezvous/file_store.h"
#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/local_secret.h"
#include "comm/rendezvous/tcp_membership.h"
#include "comm/rendezvous/tcp_server.h"
#include "comm/rendezvous/tcp_store.h"
#include "comm/rendezvous/url.h"
#include "comm/stall.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr const char* kAddressKey = "tandem/rendezvous";

// This process's rank and the size of the job.
struct RankAndSize {
  int rank = 0, size = 1;
};

// With env://, a process can be each rank only once at a time, because MASTER_PORT identifies one
// job.
class EnvUse {
 public:
  explicit EnvUse(int rank) : rank_(rank) {
    const std::scoped_lock lock(mutex());
    if (!ranks().insert(rank).second)
      fail<FailedPreconditionError>(
          "[rendezvous] Unable to perform re-rendezvous using env:// method: this process is rank "
          "{} of a job already",
          rank);
  }
  ~EnvUse() {
    const std::scoped_lock lock(mutex());
    ranks().erase(rank_);
  }
  EnvUse(const EnvUse&) = delete;
  EnvUse& operator=(const EnvUse&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static std::set<int>& ranks() {
    static auto& instance = *new std::set<int>;
    return instance;
  }
  int rank_;
};

// Servers of jobs in which rank 0 failed before all ranks had joined. They outlive rank 0's job for
// a while, so that late ranks receive the error instead of waiting for their time limit.
class FailedStarts {
 public:
  static FailedStarts& get() {
    static auto& instance = *new FailedStarts;
    return instance;
  }

  void keep(std::unique_ptr<TcpServer> server) {
    server->report_failed_start(kLimit);
    const std::scoped_lock lock(mutex_);
    servers_.push_back(std::move(server));
  }
  // Called because another job of this process may need the port.
  void cut_short() {
    const std::scoped_lock lock(mutex_);
    for (const auto& server : servers_) server->report_failed_start(std::chrono::milliseconds(0));
    servers_.clear();
  }

 private:
  static constexpr auto kLimit = std::chrono::seconds(5);

  FailedStarts() {
    // OpenSSL, which the servers use, cleans up at exit. This call makes it register its exit
    // handler first, so that it runs after the handler below.
    random_bytes(1);
    std::atexit([] { get().servers_.clear(); });
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<TcpServer>> servers_;
};

// Long enough for a process that is stopped for a moment or does not get a CPU.
std::chrono::milliseconds silence_limit(std::optional<std::chrono::milliseconds> option) {
  constexpr auto kDefault = std::chrono::seconds(30);
  constexpr std::int64_t kMost = 24 * 3600;
  if (!option)
    return std::chrono::seconds(
        env_int("TANDEM_SILENCE_LIMIT", 1, kMost).value_or(kDefault.count()));
  if (*option <= std::chrono::milliseconds(0))
    fail<InvalidArgumentError>("[rendezvous] expected a positive silence_limit, got {} ms",
                               option->count());
  return *option;
}

class TcpJob final : public Job {
 public:
  TcpJob(RankAndSize place, const RendezvousOptions& options)
      : place_(place),
        options_(options),
        limit_(options.timeout),
        silence_(silence_limit(options.silence)) {
    require_descriptors(kOwnDescriptors, fmt::format("rank {} of a job", place.rank));
  }
  ~TcpJob() override {
    if (tcp_membership_) tcp_membership_->report_noted_failure();
    store_.reset();
    tcp_store_.reset();
    membership_.reset();
    tcp_membership_.reset();
    if (server_) FailedStarts::get().keep(std::move(server_));
  }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  const std::string& master() const override { return master_; }
  const std::shared_ptr<Store>& store() const override { return store_; }
  const std::shared_ptr<Membership>& membership() const override { return membership_; }

  void shut_down(std::chrono::milliseconds limit) override {
    const Clock::time_point deadline = Clock::now() + limit;
    tcp_membership_->shut_down(deadline);
    tcp_store_->shut_down();
    if (server_) server_->wait_until_deserted(deadline);
    server_.reset();
    if (file_ && place_.rank == 0) file_->remove_file();
    file_.reset();
    env_.reset();
  }

  void meet_by_env(const ClusterEnvironment& environment, const std::string& token) {
    env_ = std::make_unique<EnvUse>(place_.rank);
    if (environment.has_server_for(place_.size))
      return meet_outside(*environment.server, token, environment.master);
    const std::string& host = environment.master;
    if (token.empty() && environment.on_several_hosts() && !is_numeric(host))
      fail<FailedPreconditionError>(
          "[rendezvous] the job has {} ranks on this host and {} in all: for ranks on several "
          "hosts, set the environment variable TANDEM_JOB_TOKEN to the same secret for all",
          *environment.local_size, *environment.size);
    may_be_elsewhere_ = place_.size > 1 && !environment.on_one_host();
    // On ports that several jobs may use, a job is identified by its launcher's name for it.
    meet_at(host, environment.ports, token, environment.ports.size() > 1 ? environment.job : "");
  }

  // The server is not one of the ranks. `master` is Job::master(); empty: the server's host.
  void meet_outside(const Endpoint& server, const std::string& token,
                    const std::string& master = "") {
    outside_ = true;
    master_ = master.empty() ? server.host : master;
    join(server.host, std::span(&server.port, 1), secret_of(server.host, token));
  }

  // Rank 0 listens on the first free one of the ports.
  void meet_at(const std::string& host, const std::vector<std::uint16_t>& ports,
               const std::string& token, const std::string& name = "") {
    master_ = host;
    if (place_.size > 1 && std::find(ports.begin(), ports.end(), 0) != ports.end())
      fail<InvalidArgumentError>(
          "[rendezvous] expected the port of rank 0, got 0: rank 0 would take any, which the other "
          "ranks do not know");
    const std::string secret = secret_of(host, token) + name;
    require_token(options_.bind_address.empty() ? host : options_.bind_address, token, "rank 0");
    if (place_.rank != 0) return join(host, ports, secret);
    const std::string address = own_address(host, token);
    serve(address, ports, secret);
    join_own_server(address, secret);
  }

  // The file contains rank 0's address and a secret.
  void meet_in_file(const std::string& path, const std::string& token) {
    file_ = std::make_unique<FileStore>(path);
    if (place_.rank != 0) return join_by_file(path, token);
    const std::string address = options_.bind_address.empty() ? "127.0.0.1" : options_.bind_address;
    file_->own();
    master_ = address;
    const std::string key = hexadecimal(random_bytes(16));
    const std::vector<std::uint16_t> any = {0};
    serve(address, any, token + key);
    file_->set(kAddressKey, fmt::format("{} {} {}", address, server_->port(), key));
    join_own_server(address, token + key);
  }

 private:
  static std::string hexadecimal(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
  }

  // Without a token the secret depends on the host's address. On a cluster that has just started,
  // the name may become known later.
  std::string secret_of(const std::string& host, const std::string& token) const {
    for (LongWait wait;; std::this_thread::sleep_for(kPause)) {
      try {
        return job_secret(host, token);
      } catch (const NotFoundError& error) {
        const auto describe = [&](std::chrono::milliseconds time) {
          return fmt::format("{}; it did not become known within {} ms", error.what(),
                             time.count());
        };
        if (Clock::now() >= limit_.end) throw DeadlineExceededError(describe(limit_.length));
        wait.look(describe);
      }
    }
  }

  // Where rank 0 listens: on all of its interfaces if `host` is its name on the other machines
  // only, or not known yet.
  std::string own_address(const std::string& host, const std::string& token) {
    if (!options_.bind_address.empty()) return options_.bind_address;
    try {
      if (!is_loopback(host) || !may_be_elsewhere_) return host;
    } catch (const NotFoundError& error) {
      logging::warn("{}; rank 0 listens on all of its interfaces", error.what());
      return any_address();
    }
    if (!token.empty()) return any_address();
    hint_ = fmt::format(
        "rank 0 listens on MASTER_ADDR, '{}', which ranks on other machines cannot reach: for "
        "those, set TANDEM_JOB_TOKEN to the same secret for all ranks",
        host);
    return host;
  }

  void serve(const std::string& address, const std::vector<std::uint16_t>& ports,
             const std::string& secret) {
    require_descriptors(kOwnDescriptors + kDescriptorsPerRank * place_.size,
                        fmt::format("rank 0, the host of a job of {} ranks,", place_.size));
    FailedStarts::get().cut_short();
    for (const std::uint16_t port : ports) {
      try {
        server_ = std::make_unique<TcpServer>(
            TcpServerOptions{.host = address, .port = port, .secret = secret, .size = place_.size});
        return;
      } catch (const AlreadyExistsError&) {
        if (port == ports.back()) throw;
      }
    }
  }

  void join_own_server(const std::string& address, const std::string& secret) {
    const bool anywhere = address == "0.0.0.0" || address == "::";
    const std::uint16_t port = server_->port();
    join(anywhere ? "localhost" : address, std::span(&port, 1), secret);
  }

  void join(const std::string& host, std::span<const std::uint16_t> ports,
            const std::string& secret) {
    // The server may serve an earlier job until all of its ranks have left.
    for (auto pause = kPause;; pause = std::min(pause * 2, kLongestPause)) {
      FoundServer found =
          find_server(host, ports, secret, limit_, outside_ ? kOutsideServer : "rank 0");
      if (enter({found.endpoint, secret}, std::move(found.connection))) return;
      std::this_thread::sleep_for(pause);
    }
  }

  // False if the server belonged to an earlier job.
  bool enter(const ServerAddress& address, ServerConnection connection) {
    try {
      tcp_membership_ =
          std::make_shared<TcpMembership>(std::move(connection),
                                          TcpMembershipOptions{.rank = place_.rank,
                                                               .size = place_.size,
                                                               .outside = outside_,
                                                               .hint = hint_,
                                                               .heartbeat = options_.heartbeat,
                                                               .silence = silence_},
                                          limit_);
    } catch (const NotAcceptedError&) {
      return false;
    }
    membership_ = tcp_membership_;
    store_ = tcp_store_ = std::make_shared<TcpStore>(
        address,
        [membership = membership_] {
          if (membership->failed()) membership->throw_failure();
        },
        tcp_membership_->job());
    return true;
  }

  // The file may contain an earlier job's data until rank 0 has overwritten it.
  void join_by_file(const std::string& path, const std::string& token) {
    std::string last = "rank 0 has not written to it", refused;
    const auto describe = [&](std::chrono::milliseconds time) {
      return fmt::format(
          "[rendezvous] rank 0 is missing: the job was not found by the file '{}' within {} ms "
          "({})",
          path, time.count(), last);
    };
    for (LongWait wait;; std::this_thread::sleep_for(kPause)) {
      const std::string text = announcement();
      if (!text.empty()) {
        const ServerAddress address = parse_announcement(text, token);
        std::optional<ServerConnection> connection;
        master_ = address.endpoint.host;
        try {
          connection.emplace(address, limit_.end);
        } catch (const InvalidArgumentError& error) {
          // Read twice while rank 0 is alive, so it is not left over from an earlier job.
          if (refused == text && file_->is_owned()) throw;
          refused = text;
          last = error.what();
        } catch (const UnavailableError& error) {
          last = error.what();
        }
        if (connection && enter(address, std::move(*connection))) return;
      }
      if (Clock::now() >= limit_.end) throw DeadlineExceededError(describe(limit_.length));
      wait.look(describe);
    }
  }

  // The contents that rank 0 has written to the file; empty if there are none.
  std::string announcement() const {
    try {
      return file_->get(kAddressKey, std::min(limit_.end, Clock::now() + kFilePatience));
    } catch (const DeadlineExceededError&) {
      return "";
    }
  }

  static ServerAddress parse_announcement(const std::string& text, const std::string& token) {
    std::istringstream parts(text);
    ServerAddress address;
    std::string key;
    parts >> address.endpoint.host >> address.endpoint.port >> key;
    if (!parts) fail<DataLossError>("[rendezvous] expected an address in the file, got '{}'", text);
    address.secret = token + key;
    return address;
  }

  static constexpr auto kPause = std::chrono::milliseconds(50);
  static constexpr auto kLongestPause = std::chrono::milliseconds(800);
  static constexpr auto kFilePatience = std::chrono::seconds(1);

  const RankAndSize place_;
  const RendezvousOptions options_;
  const TimeLimit limit_;
  const std::chrono::milliseconds silence_;
  bool outside_ = false;           // the server is not one of the ranks
  bool may_be_elsewhere_ = false;  // other ranks may be on other machines
  std::string master_;
  std::string hint_;  // why ranks may not find this one
  std::unique_ptr<EnvUse> env_;
  std::unique_ptr<FileStore> file_;
  std::unique_ptr<TcpServer> server_;  // rank 0's; destroyed after its clients
  std::shared_ptr<TcpMembership> tcp_membership_;
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<TcpStore> tcp_store_;
  std::shared_ptr<Store> store_;
};

// Merges a number that may be in the URL, in the options, or in both.
std::optional<int> agreed(const char* name, std::optional<int> in_url, std::optional<int> option) {
  if (in_url && option && *in_url != *option)
    fail<InvalidArgumentError>("[rendezvous] {} is {} in the URL and {} in the options", name,
                               *in_url, *option);
  return in_url ? in_url : option;
}

const char* name_of(RendezvousUrl::Scheme scheme) {
  switch (scheme) {
    case RendezvousUrl::Scheme::kEnv: return "env";
    case RendezvousUrl::Scheme::kTcp: return "tcp";
    case RendezvousUrl::Scheme::kFile: return "file";
  }
  return "";
}

[[noreturn]] void fail_for_want_of(const char* variable) {
  fail_rendezvous("env", fmt::format("environment variable {} expected, but not set", variable));
}

void require_address(const ClusterEnvironment& environment, int size) {
  if (environment.has_server_for(size)) return;
  if (environment.master.empty()) fail_for_want_of("MASTER_ADDR");
  if (environment.ports.empty()) fail_for_want_of("MASTER_PORT");
}

RankAndSize place_of(const RendezvousUrl& url, const RendezvousOptions& options,
                     const ClusterEnvironment& environment) {
  auto rank = agreed("rank", url.rank, options.rank);
  auto size = agreed("world_size", url.world_size, options.world_size);
  if (url.scheme == RendezvousUrl::Scheme::kEnv) {
    if (!rank || !size) environment.require_one_launcher();
    if (!rank) rank = environment.rank;
    if (!size) size = environment.size;
    if (!rank) fail_for_want_of("RANK");
    if (!size) fail_for_want_of("WORLD_SIZE");
  }
  if (!rank) fail_rendezvous(name_of(url.scheme), "rank parameter missing");
  if (!size) fail_rendezvous(name_of(url.scheme), "world size parameter missing");
  if (*size < 1)
    fail<InvalidArgumentError>("[rendezvous] expected a world size of at least 1, got {}", *size);
  if (*rank < 0 || *rank >= *size)
    fail<InvalidArgumentError>("[rendezvous] expected a rank in [0, {}), got {}", *size, *rank);
  return {*rank, *size};
}

}  // namespace

int Job::next_call(const std::string& what) {
  const std::scoped_lock lock(mutex_);
  return calls_[what]++;
}

std::unique_ptr<Job> rendezvous(const std::string& url, const RendezvousOptions& options) {
  const RendezvousUrl parsed = parse_rendezvous_url(url);
  const bool by_env = parsed.scheme == RendezvousUrl::Scheme::kEnv;
  const ClusterEnvironment environment = by_env ? cluster_environment() : ClusterEnvironment();
  const RankAndSize place = place_of(parsed, options, environment);
  const std::string token =
      options.token ? *options.token : env_string("TANDEM_JOB_TOKEN").value_or("");
  auto job = std::make_unique<TcpJob>(place, options);
  switch (parsed.scheme) {
    case RendezvousUrl::Scheme::kEnv:
      require_address(environment, place.size);
      job->meet_by_env(environment, token);
      break;
    case RendezvousUrl::Scheme::kTcp:
      if (parsed.outside)
        job->meet_outside({parsed.host, parsed.port}, token);
      else
        job->meet_at(parsed.host, {parsed.port}, token);
      break;
    case RendezvousUrl::Scheme::kFile: job->meet_in_file(parsed.path, token); break;
  }
  return job;
}

}  // namespace tandem
