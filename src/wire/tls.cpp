#include "wire/tls.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "base/hex.h"
#include "base/sha256.h"
#include "wire/secret.h"

namespace trireme::wire {
namespace {

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* held) const {
    release(held);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Release<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Release<X509_free>>;
using BioPtr = std::unique_ptr<BIO, Release<BIO_free>>;

// Tolerates a clock on another machine that is a day off.
constexpr long kDay = 24 * 60 * 60;

std::string drain(BIO* bio) {
  char* data = nullptr;
  long size = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<std::size_t>(size));
}

std::string fingerprint_of(X509* certificate) {
  unsigned char* der = nullptr;
  int size = i2d_X509(certificate, &der);
  if (size <= 0) return "";
  std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return base::to_hex(base::sha256(bytes));
}

}  // namespace

base::Result<Certificate> make_certificate() {
  Key key(EVP_EC_gen("P-256"));
  X509Ptr x509(X509_new());
  if (!key || !x509) return base::error("OpenSSL could not create a key");
  ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
  X509_set_version(x509.get(), X509_VERSION_3);
  X509_gmtime_adj(X509_getm_notBefore(x509.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3650 * kDay);
  X509_NAME* name = X509_get_subject_name(x509.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("trireme"), -1, -1, 0);
  X509_set_issuer_name(x509.get(), name);
  X509_set_pubkey(x509.get(), key.get());
  if (X509_sign(x509.get(), key.get(), EVP_sha256()) == 0) return base::error("OpenSSL could not sign a certificate");

  BioPtr key_text(BIO_new(BIO_s_mem()));
  BioPtr certificate_text(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1 ||
      PEM_write_bio_X509(certificate_text.get(), x509.get()) != 1) {
    return base::error("OpenSSL could not write a certificate");
  }
  return Certificate{drain(key_text.get()), drain(certificate_text.get()), fingerprint_of(x509.get())};
}

base::Result<asio::ssl::context> server_tls(const Certificate& certificate) {
  asio::ssl::context context(asio::ssl::context::tls_server);
  context.set_options(asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_tlsv1);
  asio::error_code failure;
  context.use_certificate(asio::buffer(certificate.certificate_pem), asio::ssl::context::pem, failure);
  if (failure) return base::error("certificate: {}", failure.message());
  context.use_private_key(asio::buffer(certificate.key_pem), asio::ssl::context::pem, failure);
  if (failure) return base::error("private key: {}", failure.message());
  return context;
}

asio::ssl::context client_tls(std::string fingerprint) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.set_options(asio::ssl::context::no_tlsv1_1 | asio::ssl::context::no_tlsv1);
  context.set_verify_mode(asio::ssl::verify_peer);
  // Ignores the result of the chain verification ("self-signed"): only this exact certificate is accepted.
  context.set_verify_callback([expected = std::move(fingerprint)](bool, asio::ssl::verify_context& verify) {
    X509* certificate = X509_STORE_CTX_get_current_cert(verify.native_handle());
    return certificate != nullptr && same_proof(fingerprint_of(certificate), expected);
  });
  return context;
}

}  // namespace trireme::wire
