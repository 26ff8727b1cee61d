-- What the applications have. They know nothing of the search.
CREATE TABLE orders (id int PRIMARY KEY, customer text NOT NULL, phone text);
CREATE TABLE addresses (order_id int REFERENCES orders ON DELETE CASCADE, line text);
CREATE TABLE items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id int REFERENCES orders ON DELETE CASCADE, name text);
CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id int REFERENCES orders ON DELETE CASCADE, text text);

-- What the search has: one row per order.
CREATE TABLE order_search (
    order_id int PRIMARY KEY,
    text     text NOT NULL,
    words    tsvector GENERATED ALWAYS AS (to_tsvector('simple', text)) STORED
);
CREATE INDEX ON order_search USING gin (words);
