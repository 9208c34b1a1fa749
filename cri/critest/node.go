package critest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version implements the CRI.
func (r *Runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v2.4.2-critest",
		RuntimeApiVersion: "v1",
	}, nil
}

// Status implements the CRI.
func (r *Runtime) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.StatusResponse{
		Status:          &runtimeapi.RuntimeStatus{Conditions: slices.Clone(r.conditions)},
		RuntimeHandlers: r.handlers,
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// RuntimeConfig implements the CRI.
func (r *Runtime) RuntimeConfig(context.Context,
	*runtimeapi.RuntimeConfigRequest,
) (*runtimeapi.RuntimeConfigResponse, error) {
	linux := &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}
	return &runtimeapi.RuntimeConfigResponse{Linux: linux}, nil
}

// UpdateRuntimeConfig implements the CRI.
func (r *Runtime) UpdateRuntimeConfig(context.Context,
	*runtimeapi.UpdateRuntimeConfigRequest,
) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// AddImage makes the runtime have an image of a size in bytes.
func (r *Runtime) AddImage(ref string, size uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addImage(ref, size)
}

func (r *Runtime) addImage(ref string, size uint64) *runtimeapi.Image {
	digest := sha256.Sum256([]byte(ref))
	id := "sha256:" + hex.EncodeToString(digest[:])
	repository := ref
	if colon := strings.LastIndexByte(ref, ':'); colon > strings.LastIndexByte(ref, '/') {
		repository = ref[:colon]
	}
	image := &runtimeapi.Image{Id: id, RepoTags: []string{ref}, RepoDigests: []string{repository + "@" + id}, Size: size}
	r.images[id] = image
	for _, name := range []string{id, ref, image.GetRepoDigests()[0]} {
		r.refs[name] = image
	}
	return image
}

// image finds an image by its ID, tag or digest. The caller holds the lock.
func (r *Runtime) image(ref string) *runtimeapi.Image { return r.refs[ref] }

// ListImages implements the CRI.
func (r *Runtime) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	for _, id := range slices.Sorted(maps.Keys(r.images)) {
		resp.Images = append(resp.Images, r.images[id])
	}
	return resp, nil
}

// ImageStatus implements the CRI.
func (r *Runtime) ImageStatus(_ context.Context,
	req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: r.image(req.GetImage().GetImage())}, nil
}

// PullImage implements the CRI: every pull succeeds, unless a hook says otherwise.
func (r *Runtime) PullImage(_ context.Context,
	req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &runtimeapi.PullImageResponse{ImageRef: r.addImage(req.GetImage().GetImage(), 1<<20).GetId()}, nil
}

// RemoveImage implements the CRI.
func (r *Runtime) RemoveImage(_ context.Context,
	req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	image := r.image(req.GetImage().GetImage())
	delete(r.images, image.GetId())
	maps.DeleteFunc(r.refs, func(_ string, held *runtimeapi.Image) bool { return held == image })
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo implements the CRI.
func (r *Runtime) ImageFsInfo(context.Context,
	*runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	usage := &runtimeapi.FilesystemUsage{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{Value: 1 << 20}, InodesUsed: &runtimeapi.UInt64Value{Value: 100},
	}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: []*runtimeapi.FilesystemUsage{usage}, ContainerFilesystems: []*runtimeapi.FilesystemUsage{usage},
	}, nil
}

// GetContainerEvents implements the CRI.
func (r *Runtime) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	if !r.events {
		return status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
	}
	if r.eventsOff {
		return nil
	}
	events := make(chan *runtimeapi.ContainerEventResponse, 4096)
	r.mu.Lock()
	r.streams[events] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.streams, events)
	}()
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event, open := <-events:
			if !open {
				return nil
			}
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// Streams is the number of open event streams.
func (r *Runtime) Streams() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.streams)
}

// BreakStreams ends every event stream.
func (r *Runtime) BreakStreams() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for events := range r.streams {
		close(events)
		delete(r.streams, events)
	}
}

// emit sends an event to every stream. The caller holds the lock.
func (r *Runtime) emit(id, sandboxID string, kind runtimeapi.ContainerEventType) {
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind,
		CreatedAt: time.Now().UnixNano(),
	}
	if box := r.sandboxes[sandboxID]; box != nil {
		event.PodSandboxStatus = box.status()
		for _, c := range box.containers {
			event.ContainersStatuses = append(event.ContainersStatuses, r.status(c))
		}
	}
	for events := range r.streams {
		select {
		case events <- event:
		default: // a reader this far behind has lost the event, as a real one can
		}
	}
}
