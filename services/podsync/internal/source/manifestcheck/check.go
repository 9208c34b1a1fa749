// Package manifestcheck answers what the source of static pods would make of a file, for the call manifest.check.
package manifestcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/source/manifest"
)

// Checker says what the source of static pods would make of a file. It changes nothing.
type Checker struct {
	Path, NodeName string
}

// Check answers the call manifest.check. The pod is the one that the source would deliver.
func (m Checker) Check(_ context.Context, req topic.ManifestRequest) (topic.ManifestReply, error) {
	reply := topic.ManifestReply{Directory: m.Path}
	if err := m.usable(); err != nil {
		return reply, bus.WithKind(bus.ErrRefused, err)
	}
	if req.File == "" && len(req.Data) == 0 {
		return reply, nil
	}
	if req.File == "" || filepath.Base(req.File) != req.File || strings.HasPrefix(req.File, ".") {
		return reply, bus.WithKind(bus.ErrInvalid,
			fmt.Errorf("%q is no name of a manifest: it is a plain file name that doesn't begin with a dot", req.File))
	}
	pod, warnings, err := manifest.Pod(req.Data, manifest.Origin{
		File: filepath.Join(m.Path, req.File), NodeName: m.NodeName,
	})
	if err != nil {
		if why := errors.Unwrap(err); why != nil {
			err = why // the file isn't there yet, and who asks knows of which document it is
		}
		return reply, bus.WithKind(bus.ErrInvalid, err)
	}
	reply.Pod, reply.Warnings = topic.RefOf(pod), warnings
	return reply, nil
}

// usable is an error if no manifests are read from a directory. One that doesn't exist yet may be created.
func (m Checker) usable() error {
	if m.Path == "" {
		return errors.New("this node has no directory of static pods: set staticPodPath in its configuration " +
			"(or --pod-manifest-path) and restart kubelot-podsync")
	}
	if info, err := os.Stat(m.Path); err == nil && !info.IsDir() {
		return fmt.Errorf("staticPodPath %s is a single file: name a directory in the configuration, and restart "+
			"kubelot-podsync", m.Path)
	}
	return nil
}
