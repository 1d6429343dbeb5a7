#pragma once

#include <span>

#include "base/bytes.h"
#include "base/hash.h"

/// SHA-256 of several messages at a time with the SHA instructions of x86-64: one message leaves
/// their pipeline half empty.
namespace varve::sha256_lanes {

/// True when this machine has the instructions; run() may only be called then.
bool is_available();

/// As sha256_all().
void run(std::span<const ByteView> messages, std::span<Digest> digests);

}  // namespace varve::sha256_lanes
