// Certificates for connections that are encrypted with TLS. All strings are PEM.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

namespace tandem::rpc {

struct TlsIdentity {
  std::string certificate;  // may be a chain, the server's first
  std::string key;          // not encrypted
};

// A new P-256 key, and a certificate for these host names and addresses that is signed with it. A
// client passes the certificate itself as its root certificate. Throws InvalidArgumentError if
// there is no host, or one that a certificate cannot hold.
TlsIdentity make_self_signed_certificate(std::span<const std::string> hosts,
                                         std::chrono::hours valid_for);

// Certificates of the tasks of a job that share a secret and no files. The key of the root
// certificate follows from the job's token: every task can make it, and a certificate of its own
// that is signed with it. The token has to be random, because a guess can be checked with a
// certificate. Throw InvalidArgumentError for an empty token, and as above.
std::string job_root_certificate(std::string_view token);
TlsIdentity make_job_certificate(std::string_view token, std::span<const std::string> hosts);

// Throw InvalidArgumentError, which names `what`, for a string that is no certificate, and for a
// key that does not belong to the certificate.
void check_certificate(const std::string& certificate, const char* what);
void check_identity(const TlsIdentity& identity, const char* what);

}  // namespace tandem::rpc
