#pragma once

#include <span>

#include "base/error.h"
#include "chunkstore/format/image.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/store/lease.h"
#include "chunkstore/store/store.h"

/// Making images and refs visible. The caller holds a lease until the last of them is published, so
/// that garbage collection cannot take what they need (varve-store(5), GARBAGE COLLECTION).
namespace varve::chunkstore {

/// Puts layers and all that they need into the lease, waits where a collector is at work on them,
/// and makes sure that everything is there: for a build that starts from an image. Errors:
/// kNotFound, naming what is missing; the store's.
Status hold_layers(Store& store, Lease& lease, std::span<const Digest> layers,
                   const SleepFunction& sleep = sleep_for_real);

/// Publishes an image of layers that are in the store; returns its id.
/// Errors: kNotFound (a layer, its placement or a pack is missing), kInvalidArgument, the store's.
Result<Digest> publish_image(Store& store, Lease& lease, const Image& image,
                             const SleepFunction& sleep = sleep_for_real);

/// Points `ref` at an image that is in the store, whatever it pointed at before.
/// Errors: kNotFound (image, or a part of it), kUnavailable (the lease has lapsed), the store's.
Status publish_ref(Store& store, Lease& lease, const RefName& ref, const Digest& image,
                   const SleepFunction& sleep = sleep_for_real);

}  // namespace varve::chunkstore
