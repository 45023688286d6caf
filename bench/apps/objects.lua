-- Tables, closures and strings; four fifths of them go after each phase.
local state = 1
local function draw(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state % n
end
local live, count = {}, 0
for phase = 1, 5 do
  for i = 1, 60000 do
    count = count + 1
    live[count] = { name = "object " .. draw(100000), text = ("x"):rep(draw(200)), list = { draw(9), draw(9) },
                    call = function() return phase + i end }
  end
  for key in pairs(live) do
    if draw(5) > 0 then live[key] = nil end
  end
end
local sum = 0
for _, object in pairs(live) do sum = sum + #object.text + object.call() end
print(count, sum)
