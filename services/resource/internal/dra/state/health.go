package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/services/resource/internal/dra/health"
)

// HealthFile is the name of the file in the kubelet's root directory.
const HealthFile = "dra_health_state"

// driverHealth has a driver's devices by <pool>/<device>.
type driverHealth struct {
	Devices map[string]deviceHealth `json:"Devices"`
}

type deviceHealth struct {
	PoolName           string                      `json:"PoolName"`
	DeviceName         string                      `json:"DeviceName"`
	Health             corev1.ResourceHealthStatus `json:"Health"`
	LastUpdated        time.Time                   `json:"LastUpdated"`
	HealthCheckTimeout time.Duration               `json:"HealthCheckTimeout"`
	Message            string                      `json:"Message"`
}

// ReadHealth reads how devices were last. No file is an empty book.
func ReadHealth(rootDir string) (health.Book, error) {
	path := filepath.Join(rootDir, HealthFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return health.Book{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the health of devices: %w", err)
	}
	var drivers map[string]driverHealth
	if err := json.Unmarshal(data, &drivers); err != nil {
		return nil, fmt.Errorf("read the health of devices from %s: %w: %w", path, ErrDamaged, where(err))
	}
	book := health.Book{}
	for name, d := range drivers {
		for _, e := range d.Devices {
			if e.HealthCheckTimeout <= 0 {
				e.HealthCheckTimeout = health.DefaultLimit
			}
			if book[name] == nil {
				book[name] = map[health.Key]health.Device{}
			}
			book[name][health.Key{Pool: e.PoolName, Device: e.DeviceName}] = health.Device{
				Status: statusOf(e.Health), Message: health.Text(e.Message), At: e.LastUpdated, Limit: e.HealthCheckTimeout,
			}
		}
	}
	return book, nil
}

func statusOf(s corev1.ResourceHealthStatus) corev1.ResourceHealthStatus {
	switch s {
	case corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy:
		return s
	}
	return corev1.ResourceHealthStatusUnknown
}

// WriteHealth writes how devices are. A loss of power may bring the last one back.
func WriteHealth(rootDir string, book health.Book) error {
	drivers := map[string]driverHealth{}
	for name, devices := range book {
		d := driverHealth{Devices: make(map[string]deviceHealth, len(devices))}
		for key, e := range devices {
			d.Devices[key.Pool+"/"+key.Device] = deviceHealth{
				PoolName: key.Pool, DeviceName: key.Device, Health: e.Status, LastUpdated: e.At, HealthCheckTimeout: e.Limit,
				Message: e.Message,
			}
		}
		drivers[name] = d
	}
	data, err := json.Marshal(drivers)
	if err == nil {
		err = atomicfile.Write(filepath.Join(rootDir, HealthFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the health of devices: %w", err)
	}
	return nil
}
