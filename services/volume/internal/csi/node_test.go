package csi

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"
)

// node is a driver that makes and removes directories, and mounts nothing. test/csidriver mounts.
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

func (n *node) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

func (n *node) NodeGetCapabilities(context.Context, *csiapi.NodeGetCapabilitiesRequest,
) (*csiapi.NodeGetCapabilitiesResponse, error) {
	answer := &csiapi.NodeGetCapabilitiesResponse{}
	if n.stages {
		answer.Capabilities = append(answer.Capabilities, &csiapi.NodeServiceCapability{
			Type: &csiapi.NodeServiceCapability_Rpc{Rpc: &csiapi.NodeServiceCapability_RPC{
				Type: csiapi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
			}},
		})
	}
	return answer, nil
}

func (n *node) NodeStageVolume(ctx context.Context, _ *csiapi.NodeStageVolumeRequest,
) (*csiapi.NodeStageVolumeResponse, error) {
	_, err := n.called(ctx, "stage")
	return &csiapi.NodeStageVolumeResponse{}, err
}

func (n *node) NodeUnstageVolume(ctx context.Context, _ *csiapi.NodeUnstageVolumeRequest,
) (*csiapi.NodeUnstageVolumeResponse, error) {
	_, err := n.called(ctx, "unstage")
	return &csiapi.NodeUnstageVolumeResponse{}, err
}

func (n *node) NodePublishVolume(ctx context.Context, r *csiapi.NodePublishVolumeRequest,
) (*csiapi.NodePublishVolumeResponse, error) {
	do, err := n.called(ctx, "publish")
	n.last = r
	if do {
		err = errors.Join(err, os.MkdirAll(r.GetTargetPath(), 0o750))
	}
	return &csiapi.NodePublishVolumeResponse{}, err
}

func (n *node) NodeUnpublishVolume(ctx context.Context, r *csiapi.NodeUnpublishVolumeRequest,
) (*csiapi.NodeUnpublishVolumeResponse, error) {
	do, err := n.called(ctx, "unpublish")
	if do {
		err = errors.Join(err, os.RemoveAll(r.GetTargetPath()))
	}
	return &csiapi.NodeUnpublishVolumeResponse{}, err
}
