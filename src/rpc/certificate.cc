#include "rpc/certificate.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdint>
#include <memory>

#include "core/status.h"

namespace tandem::rpc {
namespace {

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Free<X509_EXTENSION_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

Bio reader_of(const std::string& text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  TANDEM_ASSERT(bio != nullptr);
  return bio;
}

// Without a prompt: a key that needs a password is an error.
int no_password(char*, int, int, void*) { return -1; }

Certificate read_certificate(const std::string& text, const char* what) {
  Certificate certificate(PEM_read_bio_X509(reader_of(text).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  if (!certificate) fail<InvalidArgumentError>("[rpc] {}: expected a certificate in PEM", what);
  return certificate;
}

void add_extension(X509* certificate, int name, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, name, value.c_str()));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1) {
    ERR_clear_error();
    fail<InvalidArgumentError>("[rpc] a certificate cannot hold '{}'", value);
  }
}

// "DNS:a.example, IP:10.0.0.1"
std::string alternative_names(std::span<const std::string> hosts) {
  std::string names;
  for (const std::string& host : hosts) {
    if (host.empty() || host.find_first_of(", \n") != std::string::npos)
      fail<InvalidArgumentError>("[rpc] expected a host name or address, got '{}'", host);
    std::array<unsigned char, 16> address;
    const bool numeric = inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
                         inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
    names += fmt::format("{}{}:{}", names.empty() ? "" : ", ", numeric ? "IP" : "DNS", host);
  }
  return names;
}

void set_common_name(X509_NAME* name, const char* text) {
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(text), -1, -1, 0);
}

Certificate new_certificate(EVP_PKEY* key, const char* subject, const char* issuer,
                            std::chrono::hours valid_for) {
  Certificate certificate(X509_new());
  TANDEM_ASSERT(key != nullptr && certificate);
  std::int64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate.get()), serial & INT64_MAX);
  // Clocks of hosts differ.
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), std::chrono::seconds(valid_for).count());
  X509_set_pubkey(certificate.get(), key);
  set_common_name(X509_get_subject_name(certificate.get()), subject);
  set_common_name(X509_get_issuer_name(certificate.get()), issuer);
  return certificate;
}

std::string pem_of(X509* certificate) {
  const Bio text(BIO_new(BIO_s_mem()));
  TANDEM_ASSERT(PEM_write_bio_X509(text.get(), certificate) == 1);
  return text_of(text.get());
}

std::string pem_of(EVP_PKEY* key) {
  const Bio text(BIO_new(BIO_s_mem()));
  TANDEM_ASSERT(PEM_write_bio_PrivateKey(text.get(), key, nullptr, nullptr, 0, nullptr, nullptr) ==
                1);
  return text_of(text.get());
}

constexpr std::chrono::hours kJobValidity{24 * 3650};
constexpr const char* kJobName = "tandem job";

Key job_root_key(std::string_view token) {
  if (token.empty()) fail<InvalidArgumentError>("[rpc] expected the job's token, got an empty one");
  constexpr std::string_view kPurpose = "tandem certificate 1";
  std::array<unsigned char, 32> seed = {};
  unsigned int size = 0;
  TANDEM_ASSERT(HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
                     reinterpret_cast<const unsigned char*>(kPurpose.data()), kPurpose.size(),
                     seed.data(), &size) != nullptr);
  return Key(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), seed.size()));
}

}  // namespace

TlsIdentity make_self_signed_certificate(std::span<const std::string> hosts,
                                         std::chrono::hours valid_for) {
  if (hosts.empty()) fail<InvalidArgumentError>("[rpc] a certificate needs a host");
  const std::string names = alternative_names(hosts);
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = new_certificate(key.get(), "tandem", "tandem", valid_for);
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  add_extension(certificate.get(), NID_subject_alt_name, names);
  TANDEM_ASSERT(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  return {pem_of(certificate.get()), pem_of(key.get())};
}

std::string job_root_certificate(std::string_view token) {
  const Key key = job_root_key(token);
  const Certificate certificate = new_certificate(key.get(), kJobName, kJobName, kJobValidity);
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  TANDEM_ASSERT(X509_sign(certificate.get(), key.get(), nullptr) > 0);
  return pem_of(certificate.get());
}

TlsIdentity make_job_certificate(std::string_view token, std::span<const std::string> hosts) {
  if (hosts.empty()) fail<InvalidArgumentError>("[rpc] a certificate needs a host");
  const std::string names = alternative_names(hosts);
  const Key root = job_root_key(token);
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate = new_certificate(key.get(), "tandem task", kJobName, kJobValidity);
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), NID_subject_alt_name, names);
  TANDEM_ASSERT(X509_sign(certificate.get(), root.get(), nullptr) > 0);
  return {pem_of(certificate.get()), pem_of(key.get())};
}

void check_certificate(const std::string& certificate, const char* what) {
  read_certificate(certificate, what);
}

void check_identity(const TlsIdentity& identity, const char* what) {
  const Certificate certificate = read_certificate(identity.certificate, what);
  const Key key(
      PEM_read_bio_PrivateKey(reader_of(identity.key).get(), nullptr, no_password, nullptr));
  const bool fits = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!key) fail<InvalidArgumentError>("[rpc] {}: expected a private key in PEM", what);
  if (!fits)
    fail<InvalidArgumentError>("[rpc] {}: the private key does not belong to the certificate",
                               what);
}

}  // namespace tandem::rpc
