#pragma once

#include "base/error.h"
#include "chunkstore/source/entry.h"

namespace varve::chunkstore {

/// Turns what OverlayFS keeps in an upper directory into what it means (directory_source.h):
/// `entry` becomes a whiteout, or loses the driver's attributes.
///
/// @param has_user_marks  `user.overlay.*` attributes are the driver's, too.
/// @return True when `entry` is a directory that is opaque. Errors do not name the path.
Result<bool> apply_upper_marks(Entry& entry, bool has_user_marks);

/// A whiteout as overlayfs stores it: character device 0:0.
bool is_whiteout_device(const Entry& entry);

}  // namespace varve::chunkstore
