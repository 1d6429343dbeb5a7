#pragma once

namespace varve::fs {

/// Whether `fd` is one of the last descriptors that RLIMIT_NOFILE allows. Numbers are given out
/// lowest first, so then few are left, and those are for reads: however many clients connect and
/// layers are attached, a pack can still be opened.
bool is_reserved_descriptor(int fd);

/// Whether the next descriptor would be one of them.
bool only_reserved_descriptors_are_left();

}  // namespace varve::fs
