package csi

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/status"

	"kubelot.dev/daemon/mountpoint"
)

// node is a driver that makes and removes directories, and mounts where a test asks for it. test/csidriver is a whole
// one.
type node struct {
	csiapi.UnimplementedNodeServer
	mu    sync.Mutex
	calls []string
	// answers are the errors of the next calls of each method; done has it do nevertheless what it is asked for.
	answers map[string][]error
	done    bool
	// entered is told of a call of the method hang, which then waits for its caller or for goOn.
	hang    string
	entered chan context.Context
	goOn    chan struct{}
	last    *csiapi.NodePublishVolumeRequest
	stages  bool
	// expands has it make volumes larger; expansion is the last request for it.
	expands bool
	// groups has it give files to the pod's group, fine tell the access modes of one node apart.
	groups, fine bool
	expansion    *csiapi.NodeExpandVolumeRequest
	// usage is how full its volumes are; without it the driver can't say that. asks is the last question.
	usage []*csiapi.VolumeUsage
	asks  *csiapi.NodeGetVolumeStatsRequest
	// mounts has it mount a tmpfs where it publishes and stages; what is published is bound to what is staged.
	mounts bool
	// writes is the name of a file that it makes in what it publishes.
	writes string
	// lies has it say that it has unpublished a volume, and do nothing.
	lies bool
	// disk is what it publishes as a device; a directory if it is one.
	disk string
	// goes is called when it unpublishes.
	goes func(*node)
	// requests are those of stage and unstage.
	requests []any
}

func (n *node) called(ctx context.Context, method string) (bool, error) {
	n.mu.Lock()
	n.calls = append(n.calls, method)
	var err error
	if list := n.answers[method]; len(list) > 0 {
		err, n.answers[method] = list[0], list[1:]
	}
	hangs, done := n.hang == method, n.done
	n.mu.Unlock()
	if hangs {
		n.entered <- ctx
		select {
		case <-ctx.Done():
			return false, status.FromContextError(ctx.Err()).Err()
		case <-n.goOn:
		}
	}
	return err == nil || done, err
}

func (n *node) asked(r any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = append(n.requests, r)
}

func (n *node) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

func (n *node) NodeGetCapabilities(context.Context, *csiapi.NodeGetCapabilitiesRequest,
) (*csiapi.NodeGetCapabilitiesResponse, error) {
	answer := &csiapi.NodeGetCapabilitiesResponse{}
	for kind, has := range map[csiapi.NodeServiceCapability_RPC_Type]bool{
		csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME: n.stages,
		csiapi.NodeServiceCapability_RPC_EXPAND_VOLUME:        n.expands,
		csiapi.NodeServiceCapability_RPC_GET_VOLUME_STATS:     n.usage != nil,
		csiapi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:   n.groups,

		csiapi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: n.fine,
	} {
		if has {
			answer.Capabilities = append(answer.Capabilities, &csiapi.NodeServiceCapability{
				Type: &csiapi.NodeServiceCapability_Rpc{Rpc: &csiapi.NodeServiceCapability_RPC{Type: kind}},
			})
		}
	}
	return answer, nil
}

func (n *node) NodeGetVolumeStats(ctx context.Context, r *csiapi.NodeGetVolumeStatsRequest,
) (*csiapi.NodeGetVolumeStatsResponse, error) {
	_, err := n.called(ctx, "usage")
	n.asks = r
	return &csiapi.NodeGetVolumeStatsResponse{Usage: n.usage}, err
}

func (n *node) NodeExpandVolume(ctx context.Context, r *csiapi.NodeExpandVolumeRequest,
) (*csiapi.NodeExpandVolumeResponse, error) {
	_, err := n.called(ctx, "expand")
	n.expansion = r
	return &csiapi.NodeExpandVolumeResponse{}, err
}

func (n *node) NodeStageVolume(ctx context.Context, r *csiapi.NodeStageVolumeRequest,
) (*csiapi.NodeStageVolumeResponse, error) {
	do, err := n.called(ctx, "stage")
	n.asked(r)
	if do && n.mounts {
		err = errors.Join(err, unix.Mount("tmpfs", r.GetStagingTargetPath(), "tmpfs", 0, "size=64k"))
	}
	return &csiapi.NodeStageVolumeResponse{}, err
}

func (n *node) NodeUnstageVolume(ctx context.Context, r *csiapi.NodeUnstageVolumeRequest,
) (*csiapi.NodeUnstageVolumeResponse, error) {
	do, err := n.called(ctx, "unstage")
	n.asked(r)
	if do && n.mounts {
		err = errors.Join(err, unix.Unmount(r.GetStagingTargetPath(), 0))
	}
	return &csiapi.NodeUnstageVolumeResponse{}, err
}

func (n *node) NodePublishVolume(ctx context.Context, r *csiapi.NodePublishVolumeRequest,
) (*csiapi.NodePublishVolumeResponse, error) {
	do, err := n.called(ctx, "publish")
	n.mu.Lock()
	n.last = r
	n.mu.Unlock()
	switch {
	case do && r.GetVolumeCapability().GetBlock() != nil:
		return &csiapi.NodePublishVolumeResponse{}, errors.Join(err, n.publishDisk(r.GetTargetPath()))
	case do:
		err = errors.Join(err, os.MkdirAll(r.GetTargetPath(), 0o750))
	}
	switch staging := r.GetStagingTargetPath(); {
	case !do || !n.mounts:
	case staging != "":
		err = errors.Join(err, unix.Mount(staging, r.GetTargetPath(), "", unix.MS_BIND, ""))
	default:
		err = errors.Join(err, unix.Mount("tmpfs", r.GetTargetPath(), "tmpfs", 0, "size=64k"))
	}
	if do && n.writes != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(r.GetTargetPath(), n.writes), nil, 0o600))
	}
	return &csiapi.NodePublishVolumeResponse{}, err
}

// publishDisk binds the disk at the target, a file that it makes.
func (n *node) publishDisk(target string) error {
	if n.disk == "" {
		return os.Mkdir(target, 0o750)
	}
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		return err
	}
	if is, err := mountpoint.Mounted(target); err != nil || is {
		return err
	}
	return unix.Mount(n.disk, target, "", unix.MS_BIND, "")
}

func (n *node) NodeUnpublishVolume(ctx context.Context, r *csiapi.NodeUnpublishVolumeRequest,
) (*csiapi.NodeUnpublishVolumeResponse, error) {
	do, err := n.called(ctx, "unpublish")
	if n.goes != nil {
		n.goes(n)
	}
	if do && (n.mounts || n.disk != "") {
		_ = unix.Unmount(r.GetTargetPath(), 0)
	}
	if do && !n.lies {
		err = errors.Join(err, os.RemoveAll(r.GetTargetPath()))
	}
	return &csiapi.NodeUnpublishVolumeResponse{}, err
}

func (n *node) NodeGetInfo(ctx context.Context, _ *csiapi.NodeGetInfoRequest) (*csiapi.NodeGetInfoResponse, error) {
	_, err := n.called(ctx, "info")
	return &csiapi.NodeGetInfoResponse{
		NodeId: "id", MaxVolumesPerNode: 7,
		AccessibleTopology: &csiapi.Topology{Segments: map[string]string{"zone": "a"}},
	}, err
}
