package bed

import "fmt"

// Leftovers lists what of the bed still exists outside its directory's files:
// processes, mounts, cgroups, the bridge. For tests that everything is gone.
func (b *Bed) Leftovers() ([]string, error) {
	var found []string
	pids, err := b.processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		found = append(found, fmt.Sprintf("process %d", pid))
	}
	points, err := b.mountPoints()
	if err != nil {
		return nil, err
	}
	for _, point := range points {
		found = append(found, "mount "+point)
	}
	dirs, err := b.cgroupDirs()
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		found = append(found, "cgroup "+dir)
	}
	if b.hasBridge() {
		found = append(found, "bridge "+b.Bridge)
	}
	return found, nil
}
