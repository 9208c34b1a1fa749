package kit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Leftovers is an error that names what the node still has of the pods: sandboxes, containers, mounts, cgroups,
// directories, logs.
func (b *Bed) Leftovers(ctx context.Context, pods ...*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		uid := string(p.UID)
		inRuntime, err := b.inRuntime(ctx, map[string]string{"io.kubernetes.pod.uid": uid})
		errs = append(errs, err)
		for _, found := range inRuntime {
			errs = append(errs, fmt.Errorf("%s: %s", p.Name, found))
		}
		found, err := b.traces(func(path string) bool {
			// The systemd driver writes the UID with underscores.
			return strings.Contains(strings.ReplaceAll(path, "_", "-"), uid)
		})
		errs = append(errs, err)
		for _, path := range found {
			errs = append(errs, fmt.Errorf("%s: %s", p.Name, path))
		}
	}
	return errors.Join(errs...)
}

// Clean is an error that names what the node has though it should run no pod at all.
func (b *Bed) Clean(ctx context.Context) error {
	found, err := b.inRuntime(ctx, nil)
	if err != nil {
		return err
	}
	traces, err := b.traces(func(path string) bool {
		name := filepath.Base(path)
		return len(name) > 36 && (strings.HasPrefix(name, "pod") || strings.Contains(path, "/pods/")) ||
			strings.Contains(path, b.Node.PodLogs+"/")
	})
	if err != nil {
		return err
	}
	found = append(found, traces...)
	ports, err := filepath.Glob("/sys/class/net/" + b.Bed.Bridge + "/brif/*")
	if err != nil {
		return err
	}
	networks, err := b.Networks()
	if err != nil {
		return err
	}
	if found = append(append(found, ports...), networks...); len(found) > 0 {
		return errors.New("left on the node:\n" + strings.Join(found, "\n"))
	}
	return nil
}

// Networks are the files of the network namespaces that the container runtime has made.
func (b *Bed) Networks() ([]string, error) {
	ofCRIO, err := filepath.Glob(b.Bed.Path("crio", "namespaces", "netns", "*"))
	if err != nil {
		return nil, err
	}
	ofContainerd, err := filepath.Glob(b.Bed.Path("containerd", "state", "*", "netns", "*"))
	return append(ofContainerd, ofCRIO...), err
}

func (b *Bed) inRuntime(ctx context.Context, labels map[string]string) ([]string, error) {
	runtime := b.CRI.Runtime()
	sandboxes, err := runtime.ListPodSandbox(ctx,
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return nil, err
	}
	containers, err := runtime.ListContainers(ctx,
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: labels}})
	if err != nil {
		return nil, err
	}
	var found []string
	for _, s := range sandboxes.GetItems() {
		found = append(found, fmt.Sprintf("sandbox %s of %s", s.GetId(), s.GetMetadata().GetName()))
	}
	for _, c := range containers.GetContainers() {
		found = append(found, fmt.Sprintf("container %s (%s)", c.GetId(), c.GetMetadata().GetName()))
	}
	return found, nil
}

// traces lists the mounts, cgroups, pod directories, logs and log links whose path matches.
func (b *Bed) traces(match func(path string) bool) ([]string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(fields[4], b.Bed.Dir+"/") && match(fields[4]) {
			found = append(found, "mount "+fields[4])
		}
		if strings.Contains(line, " - cgroup") {
			found = append(found, dirs("cgroup", filepath.Join(fields[4], b.Bed.CgroupRoot), 4, match)...)
		}
	}
	found = append(found, dirs("directory", filepath.Join(b.Node.RootDir, "pods"), 1, match)...)
	found = append(found, dirs("logs", b.Node.PodLogs, 1, match)...)
	links, err := os.ReadDir("/var/log/containers")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, link := range links {
		target, err := os.Readlink(filepath.Join("/var/log/containers", link.Name()))
		if err == nil && strings.HasPrefix(target, b.Bed.Dir+"/") && match(target) {
			found = append(found, "log link "+link.Name())
		}
	}
	return found, nil
}

// dirs lists the matching directories below root, up to a depth.
func dirs(kind, root string, depth int, match func(string) bool) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil // gone meanwhile
	}
	var found []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if !entry.IsDir() {
			continue
		}
		if match(path) {
			found = append(found, kind+" "+path)
		} else if depth > 1 {
			found = append(found, dirs(kind, path, depth-1, match)...)
		}
	}
	return found
}
