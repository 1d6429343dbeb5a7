#include "fs/control/attach_service.h"

#include <sys/random.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "chunkstore/format/keys.h"
#include "chunkstore/format/placement.h"
#include "chunkstore/format/ref.h"
#include "chunkstore/read/image_store.h"

namespace varve::fs {
namespace {

constexpr size_t kKnownImageCountMax = 16;

std::string random_lease() {
  Digest random;
  size_t filled = 0;
  while (filled < random.bytes.size()) {
    const ssize_t size = getrandom(random.bytes.data() + filled, random.bytes.size() - filled, 0);
    if (size > 0) filled += static_cast<size_t>(size);
  }
  return random.hex().substr(0, 32);
}

std::string mount_key(const LayerView& view) {
  return view.domain + "/" + view.layer->id().hex();
}

}  // namespace

AttachService::AttachService(AttachServiceOptions options, NodeTable& nodes, ReadService& reads,
                             Session& session, Mounter* mounter, LogSink log)
    : options_(std::move(options)),
      nodes_(nodes),
      reads_(reads),
      session_(session),
      mounter_(mounter),
      log_(std::move(log)) {}

AttachService::~AttachService() = default;

bool AttachService::stop(Deadline deadline) {
  is_stopping_ = true;
  bool all_ended = true;
  {
    std::lock_guard lock(stores_mutex_);
    for (auto& [url, store] : stores_) all_ended = store->pool().stop(deadline) && all_ended;
  }
  background_.wait_idle();
  drop_idle();
  return all_ended;
}

void AttachService::run_in_background(std::function<void()> task) {
  background_.submit(std::move(task));
}

Result<std::shared_ptr<StoreSession>> AttachService::session_of(const std::string& url) {
  std::lock_guard lock(stores_mutex_);
  if (const auto found = stores_.find(url); found != stores_.end()) return found->second;
  if (stores_.size() >= options_.store_count_max) {
    // A layer that prefers another store by now may still have work on the threads of this one.
    std::erase_if(stores_, [](const auto& item) {
      return item.second.use_count() == 1 && item.second->pool().is_idle();
    });
  }
  if (stores_.size() >= options_.store_count_max) {
    return fail(ErrorCode::kBusy, "too many stores are in use at the same time");
  }
  auto session =
      std::make_shared<StoreSession>(url, options_.open_store, options_.thread_count_for_each_store,
                                     [this] { return reads_.make_executor(); });
  stores_.emplace(url, session);
  return session;
}

void AttachService::attach(AttachRequest request, Done done) {
  if (auto attachment = attach_at_once(request)) {
    done(std::move(attachment));
    return;
  }
  auto found = session_of(request.store);
  if (!found) {
    done(tl::unexpected(std::move(found).error()));
    return;
  }
  const Deadline deadline = deadline_after_ms(options_.attach_deadline_ms);
  FetchPool& pool = (*found)->pool();
  Status submitted =
      pool.submit_task([this, session = std::move(*found), request = std::move(request), done,
                        deadline] { done(attach_now(session, request, deadline)); });
  if (!submitted) done(tl::unexpected(std::move(submitted).error()));
}

std::shared_ptr<Attachment> AttachService::attach_at_once(const AttachRequest& request) {
  if (!request.layers.empty() || Digest::from_hex(request.image)) return nullptr;
  const auto ref = chunkstore::parse_ref(request.image);
  if (!ref) return nullptr;
  std::shared_ptr<StoreSession> session;
  {
    std::lock_guard lock(stores_mutex_);
    const auto found = stores_.find(request.store);
    if (found == stores_.end()) return nullptr;
    session = found->second;
  }
  const auto store = session->opened();
  if (store == nullptr) return nullptr;
  const auto pointer = store->get_at_once(chunkstore::ref_key(*ref), chunkstore::kPointerBytes);
  const auto id = pointer ? chunkstore::parse_pointer(*pointer)
                          : fail(ErrorCode::kUnavailable, "not in memory");
  const auto image = id ? known_image(*id) : nullptr;
  if (image == nullptr) return nullptr;
  auto attachment = std::make_shared<Attachment>();
  attachment->lease = random_lease();
  attachment->image_id = *id;
  attachment->image = *image;
  attachment->ids = image->ids;
  if (attach_layers_at_once(*store, request, *attachment)) return attachment;
  detach(std::move(attachment));
  return nullptr;
}

bool AttachService::attach_layers_at_once(const chunkstore::Store& store,
                                          const AttachRequest& request, Attachment& attachment) {
  for (const Digest& id : attachment.image.layers) {
    const auto view = nodes_.attach_again(request.domain, id);
    if (view == nullptr) return false;
    attachment.views.push_back(view);
    auto source = view->layer->source_in(store);
    if (source == nullptr) return false;
    view->layer->prefer(source);
    attachment.sources.push_back(std::move(source));
  }
  return !request.wants_mounts || make_mounts_at_once(attachment);
}

bool AttachService::make_mounts_at_once(Attachment& attachment) {
  if (mounter_ == nullptr) return false;
  for (const auto& view : attachment.views) {
    const std::string key = mount_key(*view);
    const std::unique_lock lock(transition_mutex_, std::try_to_lock);
    if (!lock) return false;
    UniqueFd fd = mounter_->mount_at_once(key);
    if (!fd) return false;
    attachment.mounts.push_back(std::move(fd));
    attachment.mount_keys.push_back(key);
    ++mount_use_counts_[key];
  }
  return true;
}

std::shared_ptr<const chunkstore::Image> AttachService::known_image(const Digest& id) {
  std::lock_guard lock(images_mutex_);
  const auto found = std::find_if(images_.begin(), images_.end(),
                                  [&](const auto& known) { return known.first == id; });
  return found == images_.end() ? nullptr : found->second;
}

void AttachService::remember_image(const Digest& id, const chunkstore::Image& image) {
  if (known_image(id) != nullptr) return;
  std::lock_guard lock(images_mutex_);
  images_.emplace_back(id, std::make_shared<chunkstore::Image>(image));
  if (images_.size() > kKnownImageCountMax) images_.pop_front();
}

Result<std::shared_ptr<Attachment>> AttachService::attach_now(
    const std::shared_ptr<StoreSession>& session, const AttachRequest& request, Deadline deadline) {
  VARVE_ASSIGN(auto store, session->open());
  auto attachment = std::make_shared<Attachment>();
  attachment->lease = random_lease();
  Status attached = attach_layers({session, std::move(store)}, request, deadline, *attachment);
  if (attached && request.wants_mounts) attached = make_mounts(*attachment);
  if (!attached) {
    detach_now(*attachment, false);
    return tl::unexpected(std::move(attached).error());
  }
  if (!request.image.empty()) remember_image(attachment->image_id, attachment->image);
  return attachment;
}

Status AttachService::attach_layers(const OpenStore& from, const AttachRequest& request,
                                    Deadline deadline, Attachment& attachment) {
  std::vector<Digest> ids;
  const chunkstore::ImageStore images(from.store);
  if (!request.image.empty()) {
    VARVE_ASSIGN(chunkstore::StoredImage found, images.resolve(request.image, deadline));
    attachment.image_id = found.id;
    attachment.image = std::move(found.image);
    ids = attachment.image.layers;
  }
  for (const std::string& text : request.layers) {
    VARVE_ASSIGN(const std::optional<Digest> id, images.find_layer(text, deadline));
    if (!id) return fail(ErrorCode::kNotFound, "no layer '" + text + "' in " + from.store->url());
    ids.push_back(*id);
  }
  for (const Digest& id : ids) {
    VARVE_TRY(attach_layer(from, request.domain, id, deadline, attachment));
  }
  return collect_ids(attachment);
}

// An image lists the ids of its layers; nothing does for the layers above it.
Status AttachService::collect_ids(Attachment& attachment) {
  std::set<uint32_t> ids(attachment.image.ids.begin(), attachment.image.ids.end());
  for (size_t i = attachment.image.layers.size(); i < attachment.views.size(); ++i) {
    VARVE_ASSIGN(const auto found, attachment.views[i]->layer->large_ids());
    ids.insert(found.begin(), found.end());
  }
  attachment.ids.assign(ids.begin(), ids.end());
  return {};
}

Status AttachService::attach_layer(const OpenStore& from, const std::string& domain,
                                   const Digest& id, Deadline deadline, Attachment& attachment) {
  std::shared_ptr<LayerView> view = nodes_.attach_again(domain, id);
  // Counted from here on: what fails below is given back with the attachment.
  if (view != nullptr) attachment.views.push_back(view);
  std::shared_ptr<AttachedLayer> layer = view == nullptr ? nullptr : view->layer;
  std::shared_ptr<LayerSource> source = layer == nullptr ? nullptr : layer->source_in(*from.store);
  if (source == nullptr) {
    std::lock_guard opening(from.session->opening_mutex(id));
    if (layer == nullptr) layer = nodes_.find_layer(id, *from.store);
    VARVE_ASSIGN(source, find_or_open_source(from, id, layer.get(), deadline));
    if (layer == nullptr) {
      VARVE_ASSIGN(layer, AttachedLayer::open(source, options_.spool_directory, deadline));
    }
    if (view == nullptr) {
      VARVE_ASSIGN(view, make_view(domain, std::move(layer)));
      attachment.views.push_back(view);
    }
  }
  // Also when another attach, from another store, made the view meanwhile.
  view->layer->prefer(source);
  attachment.sources.push_back(std::move(source));
  return {};
}

Result<std::shared_ptr<LayerSource>> AttachService::find_or_open_source(const OpenStore& from,
                                                                        const Digest& id,
                                                                        const AttachedLayer* layer,
                                                                        Deadline deadline) {
  if (layer != nullptr) {
    if (auto source = layer->source_in(*from.store)) return source;
  }
  return LayerSource::open(from.session, from.store, id, options_.spool_directory, deadline);
}

Result<std::shared_ptr<LayerView>> AttachService::make_view(const std::string& domain,
                                                            std::shared_ptr<AttachedLayer> layer) {
  VARVE_ASSIGN(std::shared_ptr<LayerView> view, nodes_.attach(domain, std::move(layer)));
  for (const uint64_t directory : {nodes_.domain_node(domain), fuse::kRootNodeId}) {
    Status invalidated = session_.invalidate_directory(directory);
    if (!invalidated) log_(LogLevel::kWarning, "invalidate", invalidated.error().to_string());
  }
  return view;
}

Status AttachService::make_mounts(Attachment& attachment) {
  if (mounter_ == nullptr) {
    return fail(ErrorCode::kUnsupported, "kernel mounts need varvefs to run as root");
  }
  for (const auto& view : attachment.views) {
    const std::string key = mount_key(*view);
    std::lock_guard lock(transition_mutex_);
    VARVE_ASSIGN(UniqueFd fd, mounter_->mount(key));
    attachment.mounts.push_back(std::move(fd));
    attachment.mount_keys.push_back(key);
    ++mount_use_counts_[key];
  }
  return {};
}

void AttachService::detach(std::shared_ptr<Attachment> attachment) {
  background_.submit([this, attachment = std::move(attachment)] {
    detach_now(*attachment, options_.idle_s > 0 && !is_stopping_);
  });
}

// What the kernel holds only because it might be needed again goes now; what is in use goes with
// its last user. Children first: an entry that is in use leaves its own children alone.
Status AttachService::invalidate(const LayerView& view, const NodeTable::Detached& detached) {
  const uint64_t directory = view.first_node_id + LayerView::kDirectory;
  VARVE_TRY(session_.invalidate_entry(directory, kImageName));
  VARVE_TRY(session_.invalidate_entry(directory, kTreeName));
  VARVE_TRY(session_.invalidate_entry(detached.domain_node, view.layer->id().hex()));
  VARVE_TRY(session_.invalidate_directory(detached.domain_node));
  if (detached.domain_is_empty) {
    VARVE_TRY(session_.invalidate_entry(fuse::kRootNodeId, view.domain));
  }
  return session_.invalidate_directory(fuse::kRootNodeId);
}

void AttachService::detach_now(Attachment& attachment, bool keeps_idle) {
  attachment.mounts.clear();
  const Deadline until = deadline_after_ms(options_.idle_s * 1000);
  for (size_t i = 0; i < attachment.views.size(); ++i) {
    const auto& view = attachment.views[i];
    const std::string key = mount_key(*view);
    const bool has_mount = i < attachment.mount_keys.size();
    IdleLayers::Taken taken;
    if (keeps_idle) taken = idle_.keep(key, view, has_mount, until);
    if (has_mount && !taken.mount) give_back_mount(key);
    if (!taken.attach) give_back(view);
  }
  attachment.mount_keys.clear();
  attachment.views.clear();
  attachment.sources.clear();
  if (keeps_idle) give_back(idle_.take_due(MonotonicClock::now(), options_.idle_count_max));
}

void AttachService::give_back_mount(const std::string& key) {
  std::lock_guard lock(transition_mutex_);
  const auto uses = mount_use_counts_.find(key);
  VARVE_CHECK(uses != mount_use_counts_.end());
  if (--uses->second > 0) return;
  mount_use_counts_.erase(uses);
  Status dropped = mounter_->drop(key);
  if (!dropped) log_(LogLevel::kWarning, "drop", dropped.error().to_string());
}

void AttachService::give_back(const std::shared_ptr<LayerView>& view) {
  const NodeTable::Detached detached = nodes_.detach(view);
  if (!detached.was_last) return;
  Status invalidated = invalidate(*view, detached);
  if (!invalidated) log_(LogLevel::kWarning, "invalidate", invalidated.error().to_string());
}

void AttachService::give_back(std::vector<IdleLayers::Layer> layers) {
  for (const IdleLayers::Layer& layer : layers) {
    if (layer.has_mount) give_back_mount(mount_key(*layer.view));
    give_back(layer.view);
  }
}

void AttachService::expire_idle() {
  auto due = idle_.take_due(MonotonicClock::now(), options_.idle_count_max);
  if (due.empty()) return;
  run_in_background([this, due = std::move(due)]() mutable { give_back(std::move(due)); });
}

void AttachService::drop_idle() {
  give_back(idle_.take_due(kNoDeadline, 0));
}

}  // namespace varve::fs
