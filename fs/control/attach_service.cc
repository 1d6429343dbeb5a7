#include "fs/control/attach_service.h"

#include <sys/random.h>

#include <set>

#include "base/check.h"
#include "chunkstore/read/image_store.h"

namespace varve::fs {
namespace {

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
    // Sessions that nobody else holds have no layer and no work.
    std::erase_if(stores_, [](const auto& item) { return item.second.use_count() == 1; });
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
  auto store = session_of(request.store);
  if (!store) {
    done(tl::unexpected(std::move(store).error()));
    return;
  }
  const Deadline deadline = deadline_after_ms(options_.attach_deadline_ms);
  FetchPool& pool = (*store)->pool();
  pool.submit_task([this, store = std::move(*store), request = std::move(request),
                    done = std::move(done),
                    deadline] { done(attach_now(store, request, deadline)); });
}

Result<std::shared_ptr<Attachment>> AttachService::attach_now(
    const std::shared_ptr<StoreSession>& store, const AttachRequest& request, Deadline deadline) {
  VARVE_TRY(store->open());
  auto attachment = std::make_shared<Attachment>();
  attachment->lease = random_lease();
  Status attached = attach_layers(store, request, deadline, *attachment);
  if (attached && request.wants_mounts) attached = make_mounts(*attachment);
  if (!attached) {
    detach_now(*attachment, false);
    return tl::unexpected(std::move(attached).error());
  }
  return attachment;
}

Status AttachService::attach_layers(const std::shared_ptr<StoreSession>& store,
                                    const AttachRequest& request, Deadline deadline,
                                    Attachment& attachment) {
  std::vector<Digest> ids;
  const chunkstore::ImageStore images(store->store());
  if (!request.image.empty()) {
    VARVE_ASSIGN(chunkstore::StoredImage found, images.resolve(request.image, deadline));
    attachment.image_id = found.id;
    attachment.image = std::move(found.image);
    ids = attachment.image.layers;
  }
  for (const std::string& text : request.layers) {
    VARVE_ASSIGN(const std::optional<Digest> id, images.find_layer(text, deadline));
    if (!id) return fail(ErrorCode::kNotFound, "no layer '" + text + "' in " + store->url());
    ids.push_back(*id);
  }
  for (const Digest& id : ids) {
    VARVE_ASSIGN(std::shared_ptr<LayerView> view,
                 attach_layer(store, request.domain, id, deadline));
    attachment.views.push_back(std::move(view));
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

Result<std::shared_ptr<LayerView>> AttachService::attach_layer(
    const std::shared_ptr<StoreSession>& store, const std::string& domain, const Digest& id,
    Deadline deadline) {
  if (auto view = nodes_.attach_again(domain, id)) return view;
  std::lock_guard opening(store->opening_mutex(id));
  std::shared_ptr<AttachedLayer> layer = nodes_.find_layer(id, *store);
  if (layer == nullptr) {
    VARVE_ASSIGN(layer, AttachedLayer::open(store, id, options_.spool_directory, deadline));
  }
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

void AttachService::drop_idle() { give_back(idle_.take_due(kNoDeadline, 0)); }

}  // namespace varve::fs
