package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/tidemark-io/tidemark/internal/kit"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// What a data directory has of a generation is moved as one, and only then deleted:
//
//	generations/3/              of generation 3
//	generations/3.9f0c…/        of another generation 3, which counts by 9f0c…: moved aside
//	generations/3.9f0c….mixed/  the same, and EVENTS no longer has all that was counted
//	generations/3.dropped/      about to be deleted
//
// No start opens what is in a directory with such a name.

// droppedName is what is about to be deleted, in the place of what it counts by.
const droppedName = "dropped"

// Aside is what counts are called once they are moved aside.
func (c Noted) Aside() string {
	if c.Mixed {
		return c.Counting + ".mixed"
	}
	return c.Counting
}

// Aside is where the counts are of a generation that no longer has a number.
func (d *Dir) Aside(n generations.Number, name string) string {
	return filepath.Join(d.Path, GenerationsDir, fmt.Sprintf("%d.%s", n, name))
}

// MovedAside lists the directories of counts that were moved aside. One whose counts have
// come back is left there empty.
func (d *Dir) MovedAside() (dirs []string, err error) {
	all, err := fs.Glob(os.DirFS(d.Path), path.Join(GenerationsDir, "*.*", BadgerDir))
	for _, counts := range all {
		if dir := path.Dir(counts); !strings.HasSuffix(dir, "."+droppedName) {
			dirs = append(dirs, filepath.Join(d.Path, dir))
		}
	}
	return dirs, err
}

// moveAside takes what is stored of generation n out of the way.
func (d *Dir) moveAside(n generations.Number, name string) error {
	return d.move(n, name, func(here, there string) error { return Replace(here, there) })
}

// takeBack puts what was moved aside in the place of generation n, where nothing is.
func (d *Dir) takeBack(n generations.Number, name string) error {
	return d.move(n, name, func(here, there string) error {
		if _, err := os.Stat(here); err == nil {
			return nil
		}
		return Replace(there, here)
	})
}

// move does something with each directory that a generation has, and where it is aside.
func (d *Dir) move(n generations.Number, name string, do func(here, there string) error) error {
	for _, dir := range []string{BadgerDir, FiltersDir} {
		if err := do(d.Of(n, dir), filepath.Join(d.Aside(n, name), dir)); err != nil {
			return fmt.Errorf("data_dir %s: move what is stored of generation %d: %w", d.Path, n, err)
		}
	}
	return nil
}

// Replace moves a directory, if it is there, in the place of another one.
func Replace(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.RemoveAll(to), kit.Move(from, to))
}

// Exchange moves what is stored of another generation n aside, and puts what was moved
// aside of the one that has the number now in its place. What is here is always of the one
// that is noted, if anything is: so it is noted between the two. Killed amid, it is done
// again.
func (d *Dir) Exchange(n generations.Number, counting string) error {
	is := d.Counted(n)
	if is.Counting != counting {
		if is.Counting != "" {
			if err := d.moveAside(n, is.Aside()); err != nil {
				return err
			}
		}
		is = Noted{Counting: counting, Mixed: true}
		_, err := os.Stat(filepath.Join(d.Aside(n, is.Aside()), BadgerDir))
		is.Mixed = err == nil
		if err := d.Note(n, is); err != nil {
			return err
		}
	}
	return d.takeBack(n, is.Aside())
}

// Drop deletes what is stored of a generation. Killed amid, finishDrops ends it.
func (d *Dir) Drop(n generations.Number) error {
	if err := d.moveAside(n, droppedName); err != nil {
		return err
	}
	if err := d.Note(n, Noted{}); err != nil {
		return err
	}
	if err := os.RemoveAll(d.Of(n, "")); err != nil {
		return err
	}
	return os.RemoveAll(d.Aside(n, droppedName))
}

// finishDrops deletes what a process that was killed has begun to delete.
func (d *Dir) finishDrops() error {
	left, err := fs.Glob(os.DirFS(d.Path), path.Join(GenerationsDir, "*."+droppedName))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(d.Path, dir)))
	}
	return err
}

// NameAside logs what was moved aside and is there still. Only a person deletes it: its
// record may come back.
func (d *Dir) NameAside(log *slog.Logger) {
	aside, err := d.MovedAside()
	if err != nil || len(aside) == 0 {
		return
	}
	log.Warn("tidemark: counts of other generations were moved aside, and take disk until a person deletes them",
		"directories", aside, "remedy", "where nobody wants their counts back: rm -r "+strings.Join(aside, " "))
}
