package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
)

// Queryer is a database handle, a connection or a transaction.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Each runs a query and calls scan for each row.
func Each(from Queryer, scan func(*sql.Rows) error, query string, args ...any) error {
	rows, err := from.QueryContext(context.Background(), query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// List reads the rows of a query, each into the columns of a new T; the result is never nil.
func List[T any](from Queryer, columns func(*T) []any, query string, args ...any) ([]T, error) {
	all := []T{}
	err := Each(from, func(rows *sql.Rows) error {
		var row T
		err := rows.Scan(columns(&row)...)
		all = append(all, row)
		return err
	}, query, args...)
	return all, err
}

// Column is List for a query with one column.
func Column[T any](from Queryer, query string, args ...any) ([]T, error) {
	return List(from, func(v *T) []any { return []any{v} }, query, args...)
}

// JSON is a list of numbers or texts as JSON, for a column or for json_each.
func JSON[T any](list []T) string {
	text, _ := json.Marshal(list) // plain data: it cannot fail
	return string(text)
}
