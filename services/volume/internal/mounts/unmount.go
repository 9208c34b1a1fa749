package mounts

import "kubelot.dev/daemon/mountpoint"

// UnmountBelow unmounts everything at and below dir. What was mounted there keeps its content, and what the node has
// mounted in a place that is bound there stays mounted in that place.
func UnmountBelow(dir string) error {
	points, err := mountpoint.Below(dir)
	if err != nil {
		return err
	}
	if err := mountpoint.Seclude(points); err != nil {
		return err
	}
	for _, p := range points {
		if err := mountpoint.UnmountPoint(p, 0); err != nil {
			return err
		}
	}
	return nil
}
