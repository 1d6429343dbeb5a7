#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"

/// The 20 bytes that begin every binary object of a store (in a pack: its trailer).
/// Defined by varve-store(5), section OBJECT PREFIX.
namespace varve::chunkstore {

inline constexpr size_t kObjectPrefixBytes = 20;
inline constexpr uint32_t kFormatVersion = 1;

/// On disk, little-endian:
///    0  u8[8]  magic
///    8  u32    version   1
///   12  u32    compat    feature bits that a reader may ignore
///   16  u32    incompat  feature bits that a reader must know, or refuse the object
void append_object_prefix(Bytes& to, std::string_view magic);

/// Checks magic, version and feature words. `bytes` holds at least kObjectPrefixBytes.
/// Errors: kCorruption (magic), kUnsupported (newer version, unknown incompatible features: the
/// message lists the bits).
Status check_object_prefix(ByteView bytes, std::string_view magic);

}  // namespace varve::chunkstore
