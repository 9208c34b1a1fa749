package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/services/resource/internal/dra/claims"
)

// ClaimsFile is the name of the file in the kubelet's root directory.
const ClaimsFile = "dra_manager_state"

// ErrDamaged is of a file that can't be what was written.
var ErrDamaged = errors.New("the file is damaged")

const (
	kind       = "DRACheckpoint"
	apiVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// envelope is the file: text with its checksum.
type envelope struct {
	Data     string `json:"Data"`
	Checksum uint32 `json:"Checksum"`
}

// content is the text in it.
type content struct {
	metav1.TypeMeta    `json:",inline"`
	ClaimInfoStateList []claim `json:"ClaimInfoStateList"`
}

type claim struct {
	ClaimUID    types.UID              `json:"ClaimUID"`
	ClaimName   string                 `json:"ClaimName"`
	Namespace   string                 `json:"Namespace"`
	PodUIDs     map[types.UID]struct{} `json:"PodUIDs"`
	DriverState map[string]driver      `json:"DriverState"`
}

type driver struct {
	Devices []device `json:"Devices"`
	// Unanswered is kubelot's own. A kubelet does not read it, and drops it when it writes the file.
	Unanswered bool `json:"Unanswered,omitempty"`
}

type device struct {
	PoolName     string   `json:"PoolName"`
	DeviceName   string   `json:"DeviceName"`
	ShareID      *string  `json:"ShareID"`
	RequestNames []string `json:"RequestNames"`
	CDIDeviceIDs []string `json:"CDIDeviceIDs"`
}

// ReadClaims reads the book of claims. No file is an empty book. Drivers are Unsure about all claims in it.
func ReadClaims(rootDir string) (claims.Book, error) {
	path := filepath.Join(rootDir, ClaimsFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return claims.Book{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the claims that are prepared: %w", err)
	}
	book, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read the claims that are prepared from %s: %w", path, err)
	}
	return book, nil
}

func decode(data []byte) (claims.Book, error) {
	var file envelope
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%w: it is no JSON object with Data and Checksum: %w", ErrDamaged, where(err))
	}
	if sum := crc32.ChecksumIEEE([]byte(file.Data)); sum != file.Checksum {
		return nil, fmt.Errorf("%w: the checksum of its Data is %d, and it says %d", ErrDamaged, sum, file.Checksum)
	}
	var c content
	if err := json.Unmarshal([]byte(file.Data), &c); err != nil {
		return nil, fmt.Errorf("%w: its Data is no list of claims: %w", ErrDamaged, where(err))
	}
	if c.Kind != kind || c.APIVersion != apiVersion {
		return nil, fmt.Errorf("%w: its Data is a %q of %q, want a %q of %q", ErrDamaged, c.Kind, c.APIVersion, kind,
			apiVersion)
	}
	return bookOf(c.ClaimInfoStateList)
}

// where adds the place to an error of JSON.
func where(err error) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("at byte %d: %w", syntax.Offset, err)
	}
	return err
}

func bookOf(list []claim) (claims.Book, error) {
	book := claims.Book{}
	for i, c := range list {
		name := types.NamespacedName{Namespace: c.Namespace, Name: c.ClaimName}
		switch {
		case c.ClaimUID == "" || c.ClaimName == "" || c.Namespace == "":
			return nil, fmt.Errorf("%w: its claim %d, %q with UID %q, has no name or UID", ErrDamaged, i, name, c.ClaimUID)
		case book[name] != nil:
			return nil, fmt.Errorf("%w: it has the claim %q twice", ErrDamaged, name)
		}
		entry := &claims.Claim{
			NamespacedName: name, UID: c.ClaimUID, Pods: map[types.UID]bool{}, Drivers: map[string]*claims.Driver{},
		}
		for pod := range c.PodUIDs {
			entry.Pods[pod] = true
		}
		for name, d := range c.DriverState {
			entry.Drivers[name] = &claims.Driver{
				Standing: claims.Unsure, Unanswered: d.Unanswered, Devices: devicesOf(d),
			}
		}
		book[name] = entry
	}
	return book, nil
}

func devicesOf(d driver) []claims.Device {
	var out []claims.Device
	for _, d := range d.Devices {
		e := claims.Device{Pool: d.PoolName, Name: d.DeviceName, Requests: d.RequestNames, CDI: d.CDIDeviceIDs}
		if d.ShareID != nil {
			e.ShareID = *d.ShareID
		}
		out = append(out, e)
	}
	return out
}

// WriteClaims writes the book of claims. It is on the disk when the function returns.
func WriteClaims(rootDir string, book claims.Book) error {
	c := content{TypeMeta: metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}, ClaimInfoStateList: []claim{}}
	for _, entry := range book.All() {
		c.ClaimInfoStateList = append(c.ClaimInfoStateList, claimOf(entry))
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the claims that are prepared: %w", err)
	}
	data, err := json.Marshal(envelope{string(text), crc32.ChecksumIEEE(text)})
	if err != nil {
		return fmt.Errorf("write the claims that are prepared: %w", err)
	}
	if err := atomicfile.WriteDurably(filepath.Join(rootDir, ClaimsFile), data, 0o600); err != nil {
		return fmt.Errorf("write the claims that are prepared: %w", err)
	}
	return nil
}

func claimOf(entry *claims.Claim) claim {
	c := claim{
		ClaimUID: entry.UID, ClaimName: entry.Name, Namespace: entry.Namespace,
		PodUIDs: map[types.UID]struct{}{}, DriverState: map[string]driver{},
	}
	for pod := range entry.Pods {
		c.PodUIDs[pod] = struct{}{}
	}
	for _, name := range slices.Sorted(maps.Keys(entry.Drivers)) {
		d := driver{Unanswered: entry.Drivers[name].Unanswered}
		for _, e := range entry.Drivers[name].Devices {
			f := device{PoolName: e.Pool, DeviceName: e.Name, RequestNames: e.Requests, CDIDeviceIDs: e.CDI}
			if e.ShareID != "" {
				f.ShareID = &e.ShareID
			}
			d.Devices = append(d.Devices, f)
		}
		c.DriverState[name] = d
	}
	return c
}

// SetAside renames a damaged file of the root directory, and returns its new path. It replaces one that was set aside
// before.
func SetAside(rootDir, name string) (string, error) {
	path := filepath.Join(rootDir, name)
	aside := path + ".damaged"
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set a damaged file aside: %w", err)
	}
	return aside, nil
}
