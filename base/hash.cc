#include "base/hash.h"

#include <openssl/evp.h>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "base/check.h"
#include "base/sha256_lanes.h"

namespace varve {

std::string Digest::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(64, '0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4];
    text[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  return text;
}

std::optional<Digest> Digest::from_hex(std::string_view text) {
  if (text.size() != 64) return std::nullopt;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  Digest digest;
  for (size_t i = 0; i < 32; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

struct Sha256::State {
  EVP_MD_CTX* context;
};

namespace {

// Fetched once: an implicit fetch costs about a microsecond in OpenSSL 3.
const EVP_MD* sha256_algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  VARVE_CHECK(algorithm != nullptr);
  return algorithm;
}

}  // namespace

Sha256::Sha256() : state_(new State{EVP_MD_CTX_new()}) {
  VARVE_CHECK(state_->context != nullptr);
  VARVE_CHECK_OP(EVP_DigestInit_ex(state_->context, sha256_algorithm(), nullptr), ==, 1);
}

Sha256::~Sha256() {
  if (state_) EVP_MD_CTX_free(state_->context);
}

Sha256::Sha256(Sha256&&) noexcept = default;

Sha256& Sha256::operator=(Sha256&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

void Sha256::update(ByteView bytes) {
  VARVE_CHECK_OP(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()), ==, 1);
}

Digest Sha256::finish() {
  Digest digest;
  VARVE_CHECK_OP(EVP_DigestFinal_ex(state_->context, digest.bytes.data(), nullptr), ==, 1);
  return digest;
}

Digest sha256(ByteView bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Xxh128 xxh3_128(ByteView bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

void sha256_all(std::span<const ByteView> messages, std::span<Digest> digests) {
  VARVE_CHECK_OP(messages.size(), ==, digests.size());
  if (sha256_lanes::is_available()) return sha256_lanes::run(messages, digests);
  for (size_t i = 0; i < messages.size(); ++i) digests[i] = sha256(messages[i]);
}

std::array<uint8_t, 16> Xxh128::canonical() const {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, {low, high});
  return std::to_array(bytes.digest);
}

Xxh3Hasher128::Xxh3Hasher128() : state_(XXH3_createState()) {
  VARVE_CHECK(state_ != nullptr);
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_.get()));
}

void Xxh3Hasher128::update(ByteView bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_.get()), bytes.data(), bytes.size());
}

Xxh128 Xxh3Hasher128::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_.get()));
  return {hash.low64, hash.high64};
}

void Xxh3Hasher128::Free::operator()(void* state) const {
  XXH3_freeState(static_cast<XXH3_state_t*>(state));
}

uint64_t xxh3_64(ByteView bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace varve
