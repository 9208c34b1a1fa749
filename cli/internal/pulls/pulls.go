package pulls

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	content "github.com/containerd/containerd/api/services/content/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"kubelot.dev/cri/imagename"
)

const (
	// namespace is where containerd's CRI plugin keeps its images.
	namespace = "k8s.io"
	// maxManifest bounds what is read of a manifest, in bytes.
	maxManifest = 4 << 20
	// Labels of content: the layers that a manifest refers to, and the repositories that content is from, by registry.
	labelLayer, labelSource = "containerd.io/gc.ref.content.l.", "containerd.io/distribution.source."
)

// patience bounds all calls together: whoever asks can do without the answer. Only tests change it.
var patience = 2 * time.Second

// Pull is an image that is being fetched.
type Pull struct {
	// Repositories are where it is from, such as docker.io/library/nginx, without a port; empty if that isn't known.
	Repositories []string `json:"repositories,omitempty"`
	// Done and Total are the bytes of its layers.
	Done  int64 `json:"doneBytes"`
	Total int64 `json:"totalBytes"`
	// LayersDone of Layers are there.
	LayersDone int `json:"layersDone"`
	Layers     int `json:"layers"`
}

// String is the progress for a person, such as "1.5 of 20.0 MiB are here (2 of 5 layers)".
func (p Pull) String() string {
	const mib = 1 << 20
	text := fmt.Sprintf("%.1f of %.1f MiB are here", float64(p.Done)/mib, float64(p.Total)/mib)
	if p.Layers > 1 {
		text += fmt.Sprintf(" (%d of %d layers)", p.LayersDone, p.Layers)
	}
	return text
}

// Of is the pull of an image, by its name in a pod's spec. If several images of its repository are being pulled, or
// none is known to be, ok is false.
func Of(all []Pull, image string) (p Pull, ok bool) {
	name, err := imagename.ParseQualified(image)
	if err != nil {
		return Pull{}, false
	}
	repository := withoutPort(name.Repository)
	var found []Pull
	for _, p := range all {
		if slices.Contains(p.Repositories, repository) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return Pull{}, false
	}
	return found[0], true
}

// withoutPort is a repository as containerd's labels name it, which leave out the port of the registry.
func withoutPort(repository string) string {
	host, path, ok := strings.Cut(repository, "/")
	i := strings.LastIndexByte(host, ':')
	if !ok || i < 0 || strings.HasSuffix(host, "]") {
		return repository
	}
	return strings.Trim(host[:i], "[]") + "/" + path
}

// Read asks the runtime at the endpoint, such as unix:///run/containerd/containerd.sock. A runtime that has no such
// service has no pulls. Errors are of a runtime that doesn't answer.
func Read(ctx context.Context, endpoint string) ([]Pull, error) {
	conn, err := grpc.NewClient("unix:"+strings.TrimPrefix(endpoint, "unix://"), grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, fmt.Errorf("container runtime endpoint %q: %w", endpoint, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
	s := store{content.NewContentClient(conn)}
	all, err := s.pulls(ctx)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask containerd for the progress of pulls: %w", err)
	}
	return all, nil
}

// store is containerd's content.
type store struct{ content.ContentClient }

func (s store) pulls(ctx context.Context) ([]Pull, error) {
	answer, err := s.ListStatuses(ctx, &content.ListStatusesRequest{})
	if err != nil || len(answer.GetStatuses()) == 0 {
		return nil, err
	}
	fetched := map[string]int64{}
	for _, f := range answer.GetStatuses() {
		if digest, isLayer := strings.CutPrefix(f.GetRef(), "layer-"); isLayer {
			fetched[digest] = f.GetOffset()
		}
	}
	manifests, err := s.manifests(ctx, fetched)
	if err != nil {
		return nil, err
	}
	var all []Pull
	for _, m := range manifests {
		p, err := s.progress(ctx, m, fetched)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Pull) int {
		return cmp.Or(slices.Compare(a.Repositories, b.Repositories), cmp.Compare(a.Total, b.Total))
	})
	return all, nil
}

// manifests are those whose layers are being fetched.
func (s store) manifests(ctx context.Context, fetched map[string]int64) ([]*content.Info, error) {
	stream, err := s.List(ctx, &content.ListContentRequest{Filters: []string{`labels."` + labelLayer + `0"`}})
	if err != nil {
		return nil, err
	}
	var found []*content.Info
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, info := range answer.GetInfo() {
			for label, digest := range info.GetLabels() {
				if _, under := fetched[digest]; under && strings.HasPrefix(label, labelLayer) {
					found = append(found, info)
					break
				}
			}
		}
	}
}

// layer is a layer in a manifest.
type layer struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// progress counts what is there of a manifest's layers.
func (s store) progress(ctx context.Context, manifest *content.Info, fetched map[string]int64) (Pull, error) {
	layers, err := s.layers(ctx, manifest.GetDigest())
	if err != nil {
		return Pull{}, err
	}
	p := Pull{Repositories: sources(manifest.GetLabels()), Layers: len(layers)}
	for _, l := range layers {
		p.Total += l.Size
		if offset, under := fetched[l.Digest]; under {
			p.Done += min(offset, l.Size)
			continue
		}
		switch _, err := s.Info(ctx, &content.InfoRequest{Digest: l.Digest}); {
		case err == nil:
			p.Done += l.Size
			p.LayersDone++
		case status.Code(err) != codes.NotFound:
			return Pull{}, err
		}
	}
	return p, nil
}

// layers reads a manifest.
func (s store) layers(ctx context.Context, digest string) ([]layer, error) {
	stream, err := s.Read(ctx, &content.ReadContentRequest{Digest: digest})
	if err != nil {
		return nil, err
	}
	var data []byte
	for len(data) <= maxManifest {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		data = append(data, answer.GetData()...)
	}
	var manifest struct {
		Layers []layer `json:"layers"`
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", digest, err)
	}
	return manifest.Layers, nil
}

// sources are the repositories in the labels of a manifest.
func sources(labels map[string]string) []string {
	var all []string
	for label, repositories := range labels {
		registry, isSource := strings.CutPrefix(label, labelSource)
		if !isSource {
			continue
		}
		for repository := range strings.SplitSeq(repositories, ",") {
			all = append(all, registry+"/"+repository)
		}
	}
	slices.Sort(all)
	return all
}
