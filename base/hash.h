#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace varve {

/// A SHA-256 digest (FIPS 180-4): the security identity of chunks, packs, layers and images.
struct Digest {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;
  /// 64 lower-case hexadecimal digits.
  std::string hex() const;
  /// The first 12 digits, for messages.
  std::string short_hex() const { return hex().substr(0, 12); }
  ByteView view() const { return bytes; }

  /// Nothing when `text` is not exactly 64 lower-case hexadecimal digits.
  static std::optional<Digest> from_hex(std::string_view text);
};

/// For unordered containers: the digest is uniform already.
struct DigestHash {
  size_t operator()(const Digest& digest) const { return load_le<size_t>(digest.bytes.data()); }
};

Digest sha256(ByteView bytes);

/// The digests of `messages`, as many, in their order. Where the CPU has SHA instructions several
/// messages are taken at a time: 1.6 times the speed of one after another if there are three.
void sha256_all(std::span<const ByteView> messages, std::span<Digest> digests);

/// SHA-256 over pieces. Loop-local. Cost: ~1,450 MB/s a core with SHA-NI.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(ByteView bytes);
  /// Ends the computation; the object may only be destroyed or assigned afterwards.
  Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-128: finds accidental damage and keys hash tables; never a trust anchor.
struct Xxh128 {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Xxh128&) const = default;
  /// The 16 bytes that xxhsum prints: big-endian, the high half first.
  std::array<uint8_t, 16> canonical() const;
};
Xxh128 xxh3_128(ByteView bytes);

/// XXH3-128 over pieces. Loop-local.
class Xxh3Hasher128 {
 public:
  Xxh3Hasher128();
  void update(ByteView bytes);
  /// Of everything since the construction; more may follow.
  Xxh128 value() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};
uint64_t xxh3_64(ByteView bytes);

}  // namespace varve
