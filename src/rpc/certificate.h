// Certificates for connections that are encrypted with TLS. All strings are PEM.
#pragma once

#include <chrono>
#include <span>
#include <string>

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

// Throw InvalidArgumentError, which names `what`, for a string that is no certificate, and for a
// key that does not belong to the certificate.
void check_certificate(const std::string& certificate, const char* what);
void check_identity(const TlsIdentity& identity, const char* what);

}  // namespace tandem::rpc
