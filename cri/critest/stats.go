package critest

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// layerBytes and layerInodes are what every writable layer of the fake has.
const (
	layerBytes  = 8192
	layerInodes = 3
)

// ListContainerStats implements the CRI: of running containers, the writable layer only.
func (r *Runtime) ListContainerStats(_ context.Context,
	req *runtimeapi.ListContainerStatsRequest,
) (*runtimeapi.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp := &runtimeapi.ListContainerStatsResponse{}
	for id, c := range r.containers {
		status := r.status(c)
		filter := req.GetFilter()
		if status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING ||
			filter.GetId() != "" && filter.GetId() != id || filter.GetPodSandboxId() != "" &&
			filter.GetPodSandboxId() != c.sandbox.id {
			continue
		}
		resp.Stats = append(resp.Stats, &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{
				Id: id, Metadata: status.GetMetadata(), Labels: status.GetLabels(), Annotations: status.GetAnnotations(),
			},
			WritableLayer: &runtimeapi.FilesystemUsage{
				Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
				UsedBytes: &runtimeapi.UInt64Value{Value: layerBytes}, InodesUsed: &runtimeapi.UInt64Value{Value: layerInodes},
			},
		})
	}
	return resp, nil
}
